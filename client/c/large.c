/* The largest write, and back: large COUNT [BYTES]. "halfway" is said in the middle of the writes. */
#include <sys/resource.h>

#include "expect.h"

static long peak_kib(void)
{
    struct rusage usage;
    EXPECT(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_maxrss;
}

int main(int argc, char** argv)
{
    size_t bytes = argc > 2 ? (size_t)atol(argv[2]) : PFS_WRITE_MAX, at, done;
    int count = argc > 1 ? atoi(argv[1]) : 1, index;
    long before;
    struct Session* s = begin(1);
    char* buffer = malloc(bytes + 1);
    File_t* f = PFSOpen(s, "/large/file", 0);
    EXPECT(buffer != NULL && f != NULL);
    for (at = 0; at <= bytes; at++)
        buffer[at] = (char)(at * 2654435761u >> 13);
    FAILS(PFSWrite(f, buffer, PFS_WRITE_MAX + (size_t)1), EFBIG);
    before = peak_kib();
    for (index = 0; index < count; index++) {
        buffer[0] = (char)index;
        EXPECT(PFSLseek(f, 0) == 0);
        if (index == count / 2)
            say("halfway");
        EXPECT(PFSWrite(f, buffer, bytes) == (int)bytes);
    }
    /* One copy on its way to the socket, and not two. */
    fprintf(stderr, "%ld KiB more at the peak for a write of %ld KiB\n", peak_kib() - before, (long)(bytes / 1024));
    EXPECT(peak_kib() - before < (long)(bytes / 1024) * 3 / 2 + 16 * 1024);

    EXPECT(PFSLseek(f, 0) == 0);
    for (done = 0; done < bytes; done += (size_t)index) {
        static char piece[5000000];
        index = PFSRead(f, piece, sizeof piece);
        EXPECT(index > 0);
        EXPECT(memcmp(piece, buffer + done, (size_t)index) == 0);
    }
    EXPECT(done == bytes);
    EXPECT(PFSPost(s, "large", (int)bytes, buffer) == 0);
    memset(buffer, 0, bytes);
    index = (int)bytes;
    EXPECT(PFSWait(s, "large", &index, buffer) == 0 && index == (int)bytes);
    EXPECT(buffer[0] == (char)(count - 1) && buffer[bytes - 1] == (char)((bytes - 1) * 2654435761u >> 13));
    EXPECT(PFSClose(f) == 0);
    EXPECT(PFSDelete(s, "/large/file") == 0);
    free(buffer);
    end(s);
    say("ok");
    return 0;
}
