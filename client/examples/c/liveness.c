/* Who is alive: liveness device NAME | liveness board
 *
 * A device keeps an ephemeral file: it goes with the device's session, so that nobody has to ask. The board watches the
 * directory they are in. */
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

static int device(struct Session* s, const char* name)
{
    char path[PFS_NAME_MAX + 16], pid[32];
    File_t* f;
    snprintf(path, sizeof path, "/alive/%s", name);
    f = PFSOpen(s, path, FILE_EPHEMERAL);
    if (f == NULL || PFSWrite(f, pid, (size_t)snprintf(pid, sizeof pid, "%ld", (long)getpid())) < 0)
        return fail(s, path);
    PFSClose(f);
    printf("%s is here\n", name);
    fflush(stdout);
    /* The session is renewed by the library; the device does its work. */
    while (PaxosSessionGetState(s) != PAXOS_SESSION_LOST)
        sleep(1);
    fprintf(stderr, "the cell was not reached in time: %s counts as dead\n", name);
    return 1;
}

int PFSEventDir(struct Session* s, FileEventDir_t* event)
{
    (void)s;
    if (event->Change != PFS_UPDATED)
        printf("%s %s\n", event->Name, event->Change == PFS_CREATED ? "came" : "went");
    fflush(stdout);
    return 0;
}

static int board(struct Session* s)
{
    static FileDirent_t entries[1000];
    int32_t count = 1000, omitted, entry;
    if (PFSEventDirSet(s, "/alive") < 0)
        return fail(s, "/alive");
    if (PFSReadDir(s, "/alive", entries, 0, &count) == 0)
        for (entry = 0; entry < count; entry++)
            printf("%s is there\n", entries[entry].Name);
    printf("watching\n");
    fflush(stdout);
    while (PFSEventGet(s, &count, &omitted) == 0)
        if (omitted > 0)
            printf("%d changes were missed\n", (int)omitted);
    return fail(s, "events");
}

int main(int argc, char** argv)
{
    struct Session* s = malloc(PaxosSessionGetSize());
    int is_device = argc == 3 && strcmp(argv[1], "device") == 0, status;
    if (s == NULL || (!is_device && (argc != 2 || strcmp(argv[1], "board") != 0))) {
        fprintf(stderr, "usage: liveness device NAME | liveness board\n");
        return 2;
    }
    if (PaxosSessionInit(s, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) < 0 || PaxosSessionOpen(s, 0, 1) < 0)
        return fail(s, "open");
    status = is_device ? device(s, argv[2]) : board(s);
    PaxosSessionDestroy(s);
    free(s);
    return status;
}
