/* A child after fork: the parent's session is not its own, but it may have others. */
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

int main(void)
{
    struct Session* s = begin(1);
    File_t* f = PFSOpen(s, "/forked", FILE_EPHEMERAL);
    int status;
    pid_t child;
    FileStat_t stat;
    EXPECT(f != NULL && PFSWrite(f, "x", 1) == 1);
    child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        struct Session* own = begin(3);
        FAILS(PFSWrite(f, "y", 1), EPERM);
        FAILS(PFSStat(s, "/forked", &stat), EPERM);
        FAILS(PaxosSessionClose(s), EPERM);
        FAILS(PaxosSessionOpen(s, 1, 1), EPERM);
        EXPECT(PaxosSessionDestroy(s) == 0);
        EXPECT(PFSStat(own, "/forked", &stat) == 0);
        end(own);
        _exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT(PFSStat(s, "/forked", &stat) == 0 && stat.Length == 1);
    EXPECT(PFSClose(f) == 0);
    end(s);
    say("ok");
    return 0;
}
