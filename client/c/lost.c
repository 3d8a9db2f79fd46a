/* A session that the cell ends: what is told, and that it can be opened again. Says its id, and waits to be killed. */
#include "expect.h"

int main(void)
{
    struct Session* s = begin(1);
    uint64_t id, again, number;
    char data[8];
    int length = sizeof data;
    File_t* f = PFSOpen(s, "/lost", FILE_EPHEMERAL);
    EXPECT(f != NULL && PFSWrite(f, "x", 1) == 1);
    EXPECT(PFSLockW(s, "lost") == 0);
    EXPECT(PFSLockNumber(s, "lost", &number) == 0);
    EXPECT(PaxosSessionGetId(s, &id) == 0);
    printf("%llu.%llu\n", (unsigned long long)(id >> 48), (unsigned long long)(id & 0xffffffffffff));
    fflush(stdout);
    FAILS(PFSWait(s, "nobody posts", &length, data), ECONNABORTED);
    EXPECT(PaxosSessionGetState(s) == PAXOS_SESSION_LOST);
    FAILS(PFSLockNumber(s, "lost", &number), ECONNABORTED);
    FAILS(PFSWrite(f, "y", 1), ECONNABORTED);
    FAILS(PFSUnlock(s, "lost"), ECONNABORTED);
    FAILS(PFSPost(s, "q", 1, "x"), ECONNABORTED);
    EXPECT(PaxosSessionClose(s) == 0); /* over there it is closed already */
    FAILS(PaxosSessionClose(s), ENOTCONN);

    EXPECT(PaxosSessionOpen(s, 1, 1) == 0);
    EXPECT(PaxosSessionGetId(s, &again) == 0 && again != id);
    EXPECT(PaxosSessionGetState(s) == PAXOS_SESSION_SAFE);
    FAILS(PFSWrite(f, "y", 1), ENOTCONN); /* a file is of the session it was opened in */
    EXPECT(PFSClose(f) == 0);
    EXPECT(PFSTryLockW(s, "lost") == 0);
    EXPECT(PFSUnlock(s, "lost") == 0);
    EXPECT(PaxosSessionSnapshot(s) == 0 || errno != 0); /* only durable replicas have one to write */
    EXPECT(PaxosSessionClose(s) == 0);

    /* Nobody is at this address. */
    EXPECT(PaxosSessionSetCell(s, "127.0.0.1:1") == 0);
    FAILS(PaxosSessionOpen(s, 1, 1), EHOSTUNREACH);
    FAILS(PFSPost(s, "q", 1, "x"), ENOTCONN);
    EXPECT(PaxosSessionDestroy(s) == 0);
    free(s);
    say("ok");
    return 0;
}
