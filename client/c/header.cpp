// The header as C++17, with the layouts that the library was built with.
#include "pfs.h"

#include <cstddef>
#include <cstdio>
#include <vector>

static_assert(sizeof(FileStat_t) == 48 && offsetof(FileStat_t, Session) == 32, "FileStat_t");
static_assert(sizeof(FileDirent_t) == 304 && offsetof(FileDirent_t, Stat) == 256, "FileDirent_t");
static_assert(sizeof(FileEventDir_t) == 4368 && offsetof(FileEventDir_t, Name) == 4097, "FileEventDir_t");
static_assert(offsetof(FileEventDir_t, Change) == 4356 && offsetof(FileEventDir_t, Number) == 4360, "FileEventDir_t");
static_assert(sizeof(FileEventLock_t) == 272 && offsetof(FileEventLock_t, Number) == 264, "FileEventLock_t");
static_assert(sizeof(FileEventQueue_t) == 272 && offsetof(FileEventQueue_t, Change) == 256, "FileEventQueue_t");
static_assert(sizeof(PaxosClientId_t) == 8, "PaxosClientId_t");

int main()
{
    std::vector<char> memory(PaxosSessionGetSize());
    auto* session = reinterpret_cast<Session*>(memory.data());
    if (PaxosSessionInit(session, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr) != 0 ||
        PaxosSessionOpen(session, 1, 1) != 0) {
        std::fprintf(stderr, "%s\n", PaxosSessionGetErr(session));
        return 1;
    }
    File_t* file = PFSOpen(session, "/c++", 0);
    int failed = file == nullptr || PFSWrite(file, "17", 2) != 2 || PFSClose(file) != 0;
    failed |= PFSDelete(session, "/c++") != 0 || PaxosSessionDestroy(session) != 0;
    std::puts(failed ? PaxosSessionGetErr(session) : "ok");
    return failed;
}
