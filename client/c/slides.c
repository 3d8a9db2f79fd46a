/* A program by someone who has the slides and nothing else: prototypes typed from them, no header of ours. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>

struct Session;
typedef struct File File_t;
typedef struct FileDirent FileDirent_t;
typedef struct FileEventDir FileEventDir_t;
typedef struct FileEventLock FileEventLock_t;
typedef struct PaxosClientId PaxosClientId_t;
typedef int bool_t;

extern int PaxosSessionGetSize(void);
extern int PaxosSessionInit(struct Session* pSession, void* (*fConnect)(struct Session*, int),
                            int (*fShutdown)(void*, int), int (*fClose)(void*),
                            int (*fGetMyAddr)(void*, struct sockaddr*), int (*fSendTo)(void*, char*, size_t, int),
                            int (*fRecvFrom)(void*, char*, size_t, int), void* (*fMalloc)(size_t),
                            void (*fFree)(void*));
extern int PaxosSessionOpen(struct Session*, int No, bool_t Sync);
extern int PaxosSessionClose(struct Session*);
extern File_t* PFSOpen(struct Session* pSession, char* Path, int Flags);
extern int PFSClose(File_t* pF);
extern int PFSDelete(struct Session* pSession, char* Path);
extern int PFSLseek(File_t* pF, off_t Offset);
extern int PFSRead(File_t* pF, char* pBuf, size_t Len);
extern int PFSWrite(File_t* pF, char* pBuf, size_t Len);
extern int PFSMkdir(struct Session*, char* Path);
extern int PFSRmdir(struct Session*, char* Path);
extern int PFSReadDir(struct Session*, char* Path, FileDirent_t* pE, int32_t Ind, int32_t* pN);
extern int PFSLockW(struct Session*, char* Name);
extern int PFSLockR(struct Session*, char* Name);
extern int PFSUnlock(struct Session*, char* Name);
extern int PFSEventDirSet(struct Session*, char* Path);
extern int PFSEventDirCancel(struct Session*, char* Path);
extern int PFSEventLockSet(struct Session*, char* Name);
extern int PFSEventLockCancel(struct Session*, char* Name);
extern int PFSEventQueueSet(struct Session*, char* Name);
extern int PFSEventQueueCancel(struct Session*, char* Name);
extern int PFSEventGet(struct Session*, int32_t* pCnt, int32_t* pOmitted);
extern int PFSPost(struct Session*, char* Queue, int Len, char* Data);
extern int PFSWait(struct Session*, char* Queue, int* Len, char* Data);
extern int PFSPeekMsg(struct Session*, char* Queue, int* Len, char* Data);
extern int PFSDeleteMsg(struct Session*, char* Queue, PaxosClientId_t*);

static int directory_events, lock_events;

int PFSEventDir(struct Session* pSession, FileEventDir_t* pE)
{
    directory_events += pSession != NULL && pE != NULL;
    return 0;
}

int PFSEventLock(struct Session* pSession, FileEventLock_t* pE)
{
    lock_events += pSession != NULL && pE != NULL;
    return 0;
}

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

int main(void)
{
    struct Session* pSession = malloc((size_t)PaxosSessionGetSize());
    char buffer[64], id[256] = {0};
    /* What a FileDirent_t is the slides do not say: room for some, and the name is what it begins with. */
    char* entries = malloc(65536);
    File_t* pF;
    int length = sizeof buffer;
    int32_t count, omitted;
    CHECK(pSession != NULL && entries != NULL);
    CHECK(PaxosSessionInit(pSession, NULL, NULL, NULL, NULL, NULL, NULL, malloc, free) == 0);
    CHECK(PaxosSessionOpen(pSession, 7, 1) == 0);
    CHECK(PFSEventDirSet(pSession, "/slides") == 0);
    CHECK(PFSEventLockSet(pSession, "slides") == 0);
    CHECK(PFSEventQueueSet(pSession, "slides") == 0);

    CHECK(PFSMkdir(pSession, "/slides") == 0);
    pF = PFSOpen(pSession, "/slides/file", 0);
    CHECK(pF != NULL);
    CHECK(PFSWrite(pF, "from the slides", 15) == 15);
    CHECK(PFSLseek(pF, 9) == 0);
    CHECK(PFSRead(pF, buffer, sizeof buffer) == 6 && memcmp(buffer, "slides", 6) == 0);
    CHECK(PFSClose(pF) == 0);
    count = 10;
    CHECK(PFSReadDir(pSession, "/slides", (FileDirent_t*)(void*)entries, 0, &count) == 0);
    CHECK(count == 1 && strcmp(entries, "file") == 0);
    CHECK(PFSEventGet(pSession, &count, &omitted) == 0 && count >= 1 && omitted == 0 && directory_events >= 1);
    CHECK(PFSDelete(pSession, "/slides/file") == 0);
    CHECK(PFSRmdir(pSession, "/slides") == 0);

    CHECK(PFSLockW(pSession, "slides") == 0);
    CHECK(PFSUnlock(pSession, "slides") == 0);
    CHECK(PFSLockR(pSession, "slides") == 0);
    CHECK(PFSUnlock(pSession, "slides") == 0);

    CHECK(PFSPost(pSession, "slides", 4, "data") == 0);
    CHECK(PFSPeekMsg(pSession, "slides", &length, buffer) == 0 && length == 4);
    CHECK(PFSDeleteMsg(pSession, "slides", (PaxosClientId_t*)(void*)id) < 0); /* no such message */
    length = sizeof buffer;
    CHECK(PFSWait(pSession, "slides", &length, buffer) == 0 && length == 4 && memcmp(buffer, "data", 4) == 0);

    CHECK(PFSEventDirCancel(pSession, "/slides") == 0);
    CHECK(PFSEventLockCancel(pSession, "slides") == 0);
    CHECK(PFSEventQueueCancel(pSession, "slides") == 0);
    CHECK(PaxosSessionClose(pSession) == 0);
    CHECK(lock_events == 0);
    free(entries);
    free(pSession);
    puts("ok");
    return 0;
}
