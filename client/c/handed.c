/* A message that came, and a cell that cannot be told so: the transport is cut as soon as the message has passed it. */
#include <netdb.h>
#include <pthread.h>
#include <unistd.h>

#include "expect.h"

#define MARK "MMMMMMMM"
#define MESSAGE_BYTES 1000

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int cut;

static int is_cut(void)
{
    int now;
    pthread_mutex_lock(&mutex);
    now = cut;
    pthread_mutex_unlock(&mutex);
    return now;
}

static void* own_connect(struct Session* s, int id)
{
    char member[64], *port;
    struct addrinfo hints, *found;
    int *handle, fd;
    if (is_cut() || PaxosSessionGetMember(s, id, member, sizeof member) < 0)
        return NULL;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    port = strrchr(member, ':');
    *port++ = 0;
    if (getaddrinfo(member, port, &hints, &found) != 0)
        return NULL;
    fd = socket(found->ai_family, found->ai_socktype, 0);
    if (connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
        freeaddrinfo(found);
        close(fd);
        return NULL;
    }
    freeaddrinfo(found);
    handle = malloc(sizeof *handle);
    *handle = fd;
    return handle;
}

static int own_shutdown(void* handle, int how)
{
    return shutdown(*(int*)handle, how);
}

static int own_close(void* handle)
{
    int result = close(*(int*)handle);
    free(handle);
    return result;
}

static int own_send(void* handle, char* data, size_t length, int flags)
{
    return is_cut() ? -1 : (int)send(*(int*)handle, data, length, flags | MSG_NOSIGNAL);
}

static int own_receive(void* handle, char* data, size_t length, int flags)
{
    int done = (int)recv(*(int*)handle, data, length, flags), at;
    for (at = 0; at + (int)strlen(MARK) <= done; at++)
        if (memcmp(data + at, MARK, strlen(MARK)) == 0) {
            pthread_mutex_lock(&mutex);
            cut = 1;
            pthread_mutex_unlock(&mutex);
            break;
        }
    return done;
}

int main(void)
{
    struct Session* s = malloc(PaxosSessionGetSize());
    char data[MESSAGE_BYTES + 1];
    int length = sizeof data, index;
    EXPECT(s != NULL);
    EXPECT(PaxosSessionInit(s, own_connect, own_shutdown, own_close, NULL, own_send, own_receive, NULL, NULL) == 0);
    EXPECT(PaxosSessionOpen(s, 1, 1) == 0);
    FAILS(PFSWait(s, "handed", &length, data), ECONNABORTED);
    EXPECT(length == MESSAGE_BYTES);
    for (index = 0; index < length; index++)
        EXPECT(data[index] == MARK[0]);
    PaxosSessionClose(s);
    EXPECT(PaxosSessionDestroy(s) == 0);
    free(s);
    say("ok");
    return 0;
}
