/* Queues: queues all | post QUEUE COUNT | wait QUEUE COUNT | work QUEUE.
 * wait takes COUNT messages and prints them; work receives, prints, acknowledges, and ends when there are none to be had. */
#include <time.h>
#include <unistd.h>

#include "expect.h"

static void all(struct Session* s)
{
    char data[16];
    int length = sizeof data;
    PaxosClientId_t one, two;
    FAILS(PFSPeekMsg(s, "q", &length, data), ENOMSG);
    EXPECT(PFSPost(s, "q", 5, "first") == 0);
    EXPECT(PFSPost(s, "q", 6, "second") == 0);
    EXPECT(PFSPost(s, "q", 0, NULL) == 0);
    EXPECT(PFSPeekMsg(s, "q", &length, data) == 0 && length == 5 && memcmp(data, "first", 5) == 0);

    /* A buffer that is too small loses nothing, and the session gets the same message again. */
    length = 2;
    FAILS(PFSPeekMsg(s, "q", &length, data), EMSGSIZE);
    EXPECT(length == 5);
    length = 2;
    FAILS(PFSWait(s, "q", &length, data), EMSGSIZE);
    EXPECT(length == 5);
    EXPECT(PFSWait(s, "q", &length, data) == 0 && length == 5 && memcmp(data, "first", 5) == 0);

    length = sizeof data;
    EXPECT(PFSPeekMsgId(s, "q", &length, data, &one) == 0 && length == 6);
    EXPECT(PFSDeleteMsg(s, "q", &one) == 0);
    FAILS(PFSDeleteMsg(s, "q", &one), ENOMSG);
    length = 0;
    EXPECT(PFSReceive(s, "q", &length, NULL, &two, -1) == 0 && length == 0);
    EXPECT(two.Number > one.Number);
    FAILS(PFSPeekMsg(s, "q", &length, data), ENOMSG);
    EXPECT(PFSAck(s, "q", &two) == 0);
    FAILS(PFSAck(s, "q", &two), ENOMSG);
}

static void post(struct Session* s, char* queue, int count)
{
    int index;
    for (index = 0; index < count; index++) {
        char text[16];
        EXPECT(PFSPost(s, queue, snprintf(text, sizeof text, "%d", index), text) == 0);
        if (index == count / 2)
            say("halfway");
    }
}

static void take(struct Session* s, char* queue, int count)
{
    while (count-- > 0) {
        char text[16];
        int length = sizeof text - 1;
        EXPECT(PFSWait(s, queue, &length, text) == 0);
        text[length] = 0;
        say(text);
    }
}

static void work(struct Session* s, char* queue)
{
    for (;;) {
        char text[16];
        int length = sizeof text - 1;
        PaxosClientId_t id;
        struct timespec pace = {0, 1000000};
        if (PFSReceive(s, queue, &length, text, &id, 0) < 0) {
            int reason = errno;
            EXPECT(reason == ENOMSG);
            return;
        }
        text[length] = 0;
        say(text);
        nanosleep(&pace, NULL); /* the work: long enough to be killed in the middle of it */
        EXPECT(PFSAck(s, queue, &id) == 0);
    }
}

int main(int argc, char** argv)
{
    struct Session* s = begin(1);
    EXPECT(argc >= 2);
    if (strcmp(argv[1], "all") == 0)
        all(s);
    else if (strcmp(argv[1], "post") == 0)
        post(s, argv[2], atoi(argv[3]));
    else if (strcmp(argv[1], "wait") == 0)
        take(s, argv[2], atoi(argv[3]));
    else
        work(s, argv[2]);
    end(s);
    say("ok");
    return 0;
}
