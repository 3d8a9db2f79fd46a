/* Waits for what another process holds: succeed. Says "waiting" before, "ok" when it has all of it. */
#include "expect.h"

int main(void)
{
    struct Session* s = begin(1);
    FileStat_t stat;
    char data[64];
    int length = sizeof data;
    EXPECT(PFSStat(s, "/hold/here", &stat) == 0 && stat.Ephemeral);
    FAILS(PFSTryLockW(s, "hold"), EBUSY);
    FAILS(PFSTryLockR(s, "hold"), EBUSY);
    FAILS(PFSLockWTimeout(s, "hold", 50), ETIMEDOUT);
    FAILS(PFSLockRTimeout(s, "hold", 50), ETIMEDOUT);
    FAILS(PFSWaitTimeout(s, "hold", &length, data, 50), ETIMEDOUT);
    FAILS(PFSWaitTimeout(s, "hold", &length, data, 0), ENOMSG);
    say("waiting");
    EXPECT(PFSWait(s, "hold", &length, data) == 0);
    EXPECT(length == 4 && memcmp(data, "work", 4) == 0);
    EXPECT(PFSLockW(s, "hold") == 0);
    FAILS(PFSLockW(s, "hold"), EDEADLK);
    FAILS(PFSStat(s, "/hold/here", &stat), ENOENT);
    end(s);
    say("ok");
    return 0;
}
