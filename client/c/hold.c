/* Holds an ephemeral file, a lock and a message until it is killed: hold. */
#include <unistd.h>

#include "expect.h"

int main(void)
{
    struct Session* s = begin(1);
    char data[64];
    int length = sizeof data;
    PaxosClientId_t id;
    File_t* f = PFSOpen(s, "/hold/here", FILE_EPHEMERAL);
    EXPECT(f != NULL && PFSWrite(f, "me", 2) == 2);
    EXPECT(PFSLockW(s, "hold") == 0);
    EXPECT(PFSPost(s, "hold", 4, "work") == 0);
    EXPECT(PFSReceive(s, "hold", &length, data, &id, -1) == 0 && length == 4);
    say("holding");
    for (;;)
        pause();
}
