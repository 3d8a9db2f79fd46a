/* A queue of work: work post JOB | work run
 *
 * A worker receives a job, does it, and acknowledges it. One that dies before that loses nothing: its session ends,
 * and the job goes to the next worker. So a job may be done twice, but never not at all. */
#include <pfs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(struct Session* s, const char* what)
{
    fprintf(stderr, "%s: %s\n", what, PaxosSessionGetErr(s));
    return 1;
}

static int run(struct Session* s)
{
    for (;;) {
        char job[256];
        int length = sizeof job - 1;
        PaxosClientId_t id;
        if (PFSReceive(s, "jobs", &length, job, &id, -1) < 0)
            return fail(s, "receive");
        job[length] = 0;
        printf("%s done\n", job);
        fflush(stdout);
        if (PFSAck(s, "jobs", &id) < 0)
            return fail(s, "acknowledge");
    }
}

int main(int argc, char** argv)
{
    struct Session* s = malloc(PaxosSessionGetSize());
    int status = 0;
    int posts = argc == 3 && strcmp(argv[1], "post") == 0;
    if (s == NULL || (!posts && (argc != 2 || strcmp(argv[1], "run") != 0))) {
        fprintf(stderr, "usage: work post JOB | work run\n");
        return 2;
    }
    if (PaxosSessionInit(s, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) < 0 || PaxosSessionOpen(s, 0, 1) < 0)
        return fail(s, "open");
    if (!posts)
        status = run(s);
    else if (PFSPost(s, "jobs", (int)strlen(argv[2]), argv[2]) < 0)
        status = fail(s, "post");
    else
        printf("%s posted\n", argv[2]);
    PaxosSessionDestroy(s);
    free(s);
    return status;
}
