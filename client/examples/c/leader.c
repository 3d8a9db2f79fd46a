/* Leader election: leader NAME
 *
 * Whoever holds the lock leads; when it dies, its session ends and the next in line leads. What the leader writes
 * names the number of its grant, so that one who was cut off and has not noticed yet can write nothing any more. */
#include <errno.h>
#include <pfs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fail(struct Session* s, const char* what)
{
    fprintf(stderr, "%s: %s\n", what, PaxosSessionGetErr(s));
    return 1;
}

/* Who leads now, as far as it has said so. */
static const char* leader(struct Session* s, char* name, size_t size)
{
    File_t* f = PFSOpen(s, "/leader", 0);
    int length = f == NULL ? -1 : PFSRead(f, name, size - 1);
    if (f != NULL)
        PFSClose(f);
    name[length < 0 ? 0 : length] = 0;
    return length <= 0 ? "somebody" : name;
}

static int lead(struct Session* s, const char* name)
{
    uint64_t grant;
    File_t* f;
    if (PFSLockNumber(s, "leader", &grant) < 0)
        return fail(s, "lock");
    f = PFSOpen(s, "/leader", 0);
    if (f == NULL || PFSReplaceIfLocked(f, (char*)name, strlen(name), "leader", grant) < 0)
        return fail(s, "write");
    PFSClose(f);
    printf("%s leads\n", name);
    fflush(stdout);
    /* The leader's work goes here, every write of it with the number of the grant. */
    while (PaxosSessionGetState(s) == PAXOS_SESSION_SAFE)
        sleep(1);
    fprintf(stderr, "the cell was not reached in time: %s does not lead any more\n", name);
    return 1;
}

int main(int argc, char** argv)
{
    struct Session* s = malloc(PaxosSessionGetSize());
    char name[64];
    int status;
    if (argc != 2 || s == NULL) {
        fprintf(stderr, "usage: leader NAME\n");
        return 2;
    }
    if (PaxosSessionInit(s, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) < 0 || PaxosSessionOpen(s, 0, 1) < 0)
        return fail(s, "open");
    if (PFSTryLockW(s, "leader") < 0) {
        if (errno != EBUSY)
            return fail(s, "lock");
        printf("%s leads, %s follows\n", leader(s, name, sizeof name), argv[1]);
        fflush(stdout);
        if (PFSLockW(s, "leader") < 0)
            return fail(s, "lock");
    }
    status = lead(s, argv[1]);
    PaxosSessionDestroy(s);
    free(s);
    return status;
}
