/* One of several processes that count under a lock: locks NAME ROUNDS. "halfway" is said in the middle.
 * Writers keep two files equal; readers must never see them differ. */
#include "expect.h"

static int number(struct Session* s, const char* path)
{
    char text[32];
    return atoi(get(s, path, text, sizeof text));
}

static void store(struct Session* s, const char* path, const char* lock, uint64_t grant, int value)
{
    char text[32];
    File_t* f = PFSOpen(s, (char*)path, 0);
    int length = snprintf(text, sizeof text, "%d", value);
    EXPECT(f != NULL);
    EXPECT(PFSReplaceIfLocked(f, text, (size_t)length, (char*)lock, grant) == length);
    EXPECT(PFSClose(f) == 0);
}

int main(int argc, char** argv)
{
    struct Session* s = begin(1);
    uint64_t before = 0, grant;
    int round, rounds;
    EXPECT(argc == 3);
    rounds = atoi(argv[2]);
    for (round = 0; round < rounds; round++) {
        int value;
        EXPECT(PFSLockW(s, argv[1]) == 0);
        EXPECT(PFSLockNumber(s, argv[1], &grant) == 0);
        EXPECT(grant > before);
        before = grant;
        value = number(s, "/locks/a");
        EXPECT(number(s, "/locks/b") == value);
        store(s, "/locks/a", argv[1], grant, value + 1);
        store(s, "/locks/b", argv[1], grant, value + 1);
        EXPECT(PFSUnlock(s, argv[1]) == 0);

        EXPECT(PFSLockR(s, argv[1]) == 0);
        EXPECT(number(s, "/locks/a") == number(s, "/locks/b"));
        EXPECT(PFSUnlock(s, argv[1]) == 0);
        if (round == rounds / 2)
            say("halfway");
    }
    FAILS(PFSUnlock(s, argv[1]), EPERM);
    end(s);
    say("ok");
    return 0;
}
