/* What the test programs share: a check that says what was wrong, and a session. */
#ifndef EXPECT_H
#define EXPECT_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pfs.h"

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s (%s: %s)\n", __FILE__, __LINE__, #condition, strerror(errno),                   \
                    PaxosSessionGetErr(NULL));                                                                         \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* The call fails with this errno, and with a sentence. */
#define FAILS(call, number)                                                                                            \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        if ((call) >= 0 || errno != (number) || PaxosSessionGetErr(NULL)[0] == 0) {                                    \
            fprintf(stderr, "%s:%d: %s is not %s but %s: %s\n", __FILE__, __LINE__, #call, #number, strerror(errno),   \
                    PaxosSessionGetErr(NULL));                                                                         \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static inline struct Session* begin(int no)
{
    struct Session* s = (struct Session*)malloc(PaxosSessionGetSize());
    EXPECT(s != NULL);
    EXPECT(PaxosSessionInit(s, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == 0);
    EXPECT(PaxosSessionOpen(s, no, 1) == 0);
    return s;
}

static inline void end(struct Session* s)
{
    EXPECT(PaxosSessionClose(s) == 0);
    EXPECT(PaxosSessionDestroy(s) == 0);
    free(s);
}

/* Tells whoever started us where we are. */
static inline void say(const char* what)
{
    printf("%s\n", what);
    fflush(stdout);
}

/* Writes text at the start of a file. */
static inline void put(struct Session* s, const char* path, const char* text)
{
    File_t* f = PFSOpen(s, (char*)path, 0);
    EXPECT(f != NULL);
    EXPECT(PFSWrite(f, (char*)text, strlen(text)) == (int)strlen(text));
    EXPECT(PFSClose(f) == 0);
}

/* A small file as a string. */
static inline char* get(struct Session* s, const char* path, char* buffer, size_t size)
{
    File_t* f = PFSOpen(s, (char*)path, 0);
    int count;
    EXPECT(f != NULL);
    count = PFSRead(f, buffer, size - 1);
    EXPECT(count >= 0);
    buffer[count] = 0;
    EXPECT(PFSClose(f) == 0);
    return buffer;
}

#endif
