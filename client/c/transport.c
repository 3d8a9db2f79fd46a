/* A transport and a malloc of the program's own, which count what passes through them. "halfway" is said once. */
#include <netdb.h>
#include <pthread.h>
#include <unistd.h>

#include "expect.h"

#define WRITES 400

struct handle {
    int fd;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long sent, received, connects, refused, shutdowns, closes, asked, mallocs, frees;
static int largest_id;

static void count(long* what, long by)
{
    pthread_mutex_lock(&mutex);
    *what += by;
    pthread_mutex_unlock(&mutex);
}

static void* own_connect(struct Session* s, int id)
{
    char member[64], *port;
    struct addrinfo hints, *found;
    struct handle* h;
    int fd;
    memset(&hints, 0, sizeof hints);
    hints.ai_socktype = SOCK_STREAM;
    pthread_mutex_lock(&mutex);
    if (id > largest_id)
        largest_id = id;
    pthread_mutex_unlock(&mutex);
    if (PaxosSessionGetMember(s, id, member, sizeof member) < 0)
        return NULL;
    port = strrchr(member, ':');
    *port++ = 0;
    if (getaddrinfo(member, port, &hints, &found) != 0)
        return NULL;
    fd = socket(found->ai_family, found->ai_socktype, 0);
    if (connect(fd, found->ai_addr, found->ai_addrlen) != 0) {
        freeaddrinfo(found);
        close(fd);
        count(&refused, 1);
        return NULL;
    }
    freeaddrinfo(found);
    h = malloc(sizeof *h);
    h->fd = fd;
    count(&connects, 1);
    return h;
}

static int own_shutdown(void* handle, int how)
{
    EXPECT(how == SHUT_RDWR);
    count(&shutdowns, 1);
    return shutdown(((struct handle*)handle)->fd, how);
}

static int own_close(void* handle)
{
    int result = close(((struct handle*)handle)->fd);
    free(handle);
    count(&closes, 1);
    return result;
}

static int own_address(void* handle, struct sockaddr* address)
{
    socklen_t length = sizeof(struct sockaddr_storage);
    count(&asked, 1);
    return getsockname(((struct handle*)handle)->fd, address, &length);
}

/* In small pieces, as a transport may. */
static int own_send(void* handle, char* data, size_t length, int flags)
{
    ssize_t done = send(((struct handle*)handle)->fd, data, length > 1000 ? 1000 : length, flags | MSG_NOSIGNAL);
    if (done > 0)
        count(&sent, done);
    return (int)done;
}

static int own_receive(void* handle, char* data, size_t length, int flags)
{
    ssize_t done = recv(((struct handle*)handle)->fd, data, length > 1000 ? 1000 : length, flags);
    if (done > 0)
        count(&received, done);
    return (int)done;
}

static void* own_malloc(size_t size)
{
    count(&mallocs, 1);
    return malloc(size);
}

static void own_free(void* memory)
{
    count(&frees, 1);
    free(memory);
}

int main(void)
{
    struct Session* s = malloc(PaxosSessionGetSize());
    char* large = malloc(1 << 20);
    char* back = malloc(1 << 20);
    char question = 7, *reply; /* PFS: what the whole tree takes */
    size_t length;
    int index, done;
    File_t* f;
    EXPECT(s != NULL && large != NULL && back != NULL);
    FAILS(PaxosSessionInit(s, own_connect, NULL, NULL, NULL, NULL, NULL, NULL, NULL), EINVAL);
    FAILS(PaxosSessionInit(s, NULL, NULL, NULL, own_address, NULL, NULL, NULL, NULL), EINVAL);
    FAILS(PaxosSessionInit(s, NULL, NULL, NULL, NULL, NULL, NULL, own_malloc, NULL), EINVAL);
    EXPECT(PaxosSessionInit(s, own_connect, own_shutdown, own_close, own_address, own_send, own_receive, own_malloc,
                            own_free) == 0);
    EXPECT(PaxosSessionOpen(s, 1, 1) == 0);
    EXPECT(connects >= 1 && asked >= 1 && mallocs == 0);

    memset(large, 'x', 1 << 20);
    f = PFSOpen(s, "/transport", 0);
    EXPECT(f != NULL && mallocs == 1);
    EXPECT(PFSWrite(f, large, 1 << 20) == 1 << 20);
    EXPECT(sent > 1 << 20);
    EXPECT(PFSLseek(f, 0) == 0);
    for (index = 0; index < 1 << 20; index += done) {
        done = PFSRead(f, back + index, (size_t)((1 << 20) - index));
        EXPECT(done > 0);
    }
    EXPECT(received > 1 << 20 && memcmp(large, back, 1 << 20) == 0);

    EXPECT(PaxosSessionReqAndRplByMsg(s, 0, &question, 1, &reply, &length) == 0);
    EXPECT(mallocs == 2 && length > 8 && reply[0] == 10);
    own_free(reply);

    for (index = 0; index < WRITES; index++) {
        EXPECT(PFSLseek(f, 0) == 0);
        EXPECT(PFSWrite(f, large, 100) == 100);
        if (index == WRITES / 2)
            say("halfway");
    }
    EXPECT(PFSClose(f) == 0);
    EXPECT(mallocs == frees);
    EXPECT(PaxosSessionClose(s) == 0);
    /* Nothing of the transport runs after the close. */
    EXPECT(closes == connects && shutdowns == connects);
    EXPECT(PaxosSessionDestroy(s) == 0);
    fprintf(stderr, "%ld connects, %ld refused, %ld bytes sent, %ld received, members 0 to %d\n", connects, refused,
            sent, received, largest_id);
    free(large);
    free(back);
    free(s);
    say("ok");
    return 0;
}
