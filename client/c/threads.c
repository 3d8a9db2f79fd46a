/* Threads with a session each; a wait that another thread ends. */
#include <pthread.h>

#include "expect.h"

#define THREADS 8
#define ROUNDS 50

static void* count_up(void* unused)
{
    struct Session* s = begin(1);
    int round;
    for (round = 0; round < ROUNDS; round++) {
        char value[16];
        File_t* f = PFSOpen(s, "/threads", 0);
        FileStat_t stat;
        int length;
        EXPECT(f != NULL && PFSLockW(s, "threads") == 0);
        length = PFSStat(s, "/threads", &stat) == 0 ? PFSRead(f, value, sizeof value - 1) : 0;
        EXPECT(length >= 0);
        value[length] = 0;
        length = snprintf(value, sizeof value, "%d", atoi(value) + 1);
        EXPECT(PFSLseek(f, 0) == 0 && PFSWrite(f, value, (size_t)length) == length);
        EXPECT(PFSUnlock(s, "threads") == 0 && PFSClose(f) == 0);
    }
    /* The reason of a failure is this thread's. */
    FAILS(PFSRmdir(s, "/threads"), ENOTDIR);
    EXPECT(strstr(PaxosSessionGetErr(s), "/threads") != NULL);
    end(s);
    return unused;
}

static struct Session* waiter;

static void* wait_for_ever(void* unused)
{
    char data[8];
    int length = sizeof data;
    FAILS(PFSWait(waiter, "nobody posts", &length, data), ENOTCONN);
    return unused;
}

/* Whether a session waits at the queue, as an event tells. */
static int heard;

int PFSEventQueue(struct Session* s, FileEventQueue_t* e)
{
    heard += s != NULL && e->Change == PFS_WAITING;
    return 0;
}

static void closed_from_outside(void)
{
    struct Session* s = begin(1);
    pthread_t thread;
    int32_t count, omitted;
    waiter = begin(2);
    EXPECT(PFSEventQueueSet(s, "nobody posts") == 0);
    EXPECT(pthread_create(&thread, NULL, wait_for_ever, NULL) == 0);
    while (!heard)
        EXPECT(PFSEventGet(s, &count, &omitted) == 0);
    EXPECT(PaxosSessionClose(waiter) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
    EXPECT(PaxosSessionDestroy(waiter) == 0);
    free(waiter);
    end(s);
}

int main(void)
{
    pthread_t threads[THREADS];
    struct Session* s;
    char text[16];
    int index;
    for (index = 0; index < THREADS; index++)
        EXPECT(pthread_create(&threads[index], NULL, count_up, NULL) == 0);
    for (index = 0; index < THREADS; index++)
        EXPECT(pthread_join(threads[index], NULL) == 0);
    s = begin(1);
    EXPECT(atoi(get(s, "/threads", text, sizeof text)) == THREADS * ROUNDS);
    end(s);
    closed_from_outside();
    say("ok");
    return 0;
}
