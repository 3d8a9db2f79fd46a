/* Everything a caller can do wrong is an error: it neither crashes nor changes anything. */
#include <limits.h>

#include "expect.h"

#define LONG 10000

static char endless[LONG]; /* no NUL for as far as anybody may read */
static char text[LONG];

static char* repeated(char what, int count)
{
    memset(text, what, (size_t)count);
    text[0] = what == 'p' ? '/' : what;
    text[count] = 0;
    return text;
}

/* What needs an open session, on a pointer that is none. */
static void none(struct Session* s, int reason)
{
    char data[8];
    int length = sizeof data;
    int32_t count = 1, omitted;
    FileDirent_t entry;
    FileStat_t stat;
    PaxosClientId_t id = {1};
    uint64_t number;
    size_t reply_length;
    char* reply;
    FAILS(PaxosSessionClose(s), reason);
    FAILS(PaxosSessionSnapshot(s), reason);
    FAILS(PaxosSessionGetState(s), reason);
    FAILS(PaxosSessionGetId(s, &number), reason);
    FAILS(PaxosSessionGetMember(s, 0, data, sizeof data), reason);
    FAILS(PaxosSessionReqAndRplByMsg(s, 0, data, 1, &reply, &reply_length), reason);
    EXPECT(PFSOpen(s, "/f", 0) == NULL);
    FAILS(PFSDelete(s, "/f"), reason);
    FAILS(PFSMkdir(s, "/f"), reason);
    FAILS(PFSRmdir(s, "/f"), reason);
    FAILS(PFSReadDir(s, "/", &entry, 0, &count), reason);
    FAILS(PFSStat(s, "/", &stat), reason);
    FAILS(PFSTruncate(s, "/f", 0), reason);
    FAILS(PFSRename(s, "/f", "/g"), reason);
    FAILS(PFSLockW(s, "l"), reason);
    FAILS(PFSLockR(s, "l"), reason);
    FAILS(PFSTryLockW(s, "l"), reason);
    FAILS(PFSTryLockR(s, "l"), reason);
    FAILS(PFSLockWTimeout(s, "l", 1), reason);
    FAILS(PFSLockRTimeout(s, "l", 1), reason);
    FAILS(PFSUnlock(s, "l"), reason);
    FAILS(PFSLockNumber(s, "l", &number), reason);
    FAILS(PFSEventDirSet(s, "/"), reason);
    FAILS(PFSEventDirCancel(s, "/"), reason);
    FAILS(PFSEventLockSet(s, "l"), reason);
    FAILS(PFSEventLockCancel(s, "l"), reason);
    FAILS(PFSEventQueueSet(s, "q"), reason);
    FAILS(PFSEventQueueCancel(s, "q"), reason);
    FAILS(PFSEventGet(s, &count, &omitted), reason);
    FAILS(PFSEventGetTimeout(s, &count, &omitted, 1), reason);
    FAILS(PFSPost(s, "q", 1, "x"), reason);
    FAILS(PFSWait(s, "q", &length, data), reason);
    FAILS(PFSWaitTimeout(s, "q", &length, data, 1), reason);
    FAILS(PFSPeekMsg(s, "q", &length, data), reason);
    FAILS(PFSPeekMsgId(s, "q", &length, data, &id), reason);
    FAILS(PFSDeleteMsg(s, "q", &id), reason);
    FAILS(PFSReceive(s, "q", &length, data, &id, 1), reason);
    FAILS(PFSAck(s, "q", &id), reason);
}

static void sessions(void)
{
    size_t size = PaxosSessionGetSize();
    struct Session* s = malloc(size);
    struct Session* copy = malloc(size);
    char* room = calloc(1, size + 1);
    struct Session* odd = (struct Session*)(void*)(room + 1);
    EXPECT(s != NULL && copy != NULL && room != NULL);
    none(NULL, EINVAL);
    FAILS(PaxosSessionInit(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), EINVAL);
    FAILS(PaxosSessionDestroy(NULL), EINVAL);
    FAILS(PaxosSessionOpen(NULL, 1, 1), EINVAL);
    FAILS(PaxosSessionSetCell(NULL, "127.0.0.1"), EINVAL);

    memset(s, 0x5a, size); /* foreign memory */
    none(s, EBADF);
    FAILS(PaxosSessionDestroy(s), EBADF);
    FAILS(PaxosSessionOpen(s, 1, 1), EBADF);
    FAILS(PaxosSessionSetCell(s, "127.0.0.1"), EBADF);

    EXPECT(PaxosSessionInit(s, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == 0);
    none(s, ENOTCONN); /* not opened yet */
    memcpy(copy, s, size);
    none(copy, EBADF); /* a session is where it was made */
    FAILS(PaxosSessionSetCell(s, NULL), EINVAL);
    FAILS(PaxosSessionSetCell(s, ""), EINVAL);
    FAILS(PaxosSessionSetCell(s, "127.0.0.1:99999"), EINVAL);
    FAILS(PaxosSessionSetCell(s, endless), ENAMETOOLONG);
    EXPECT(PaxosSessionDestroy(s) == 0);
    none(s, EBADF);
    FAILS(PaxosSessionDestroy(s), EBADF);

    /* Memory of any alignment will do. */
    EXPECT(PaxosSessionInit(odd, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == 0);
    EXPECT(PaxosSessionOpen(odd, 1, 1) == 0);
    FAILS(PaxosSessionOpen(odd, 1, 1), EISCONN);
    FAILS(PaxosSessionSetCell(odd, "127.0.0.1"), EISCONN);
    put(odd, "/bad", "x");
    EXPECT(PaxosSessionClose(odd) == 0);
    none(odd, ENOTCONN); /* closed */
    EXPECT(PaxosSessionOpen(odd, 1, 1) == 0);
    EXPECT(PaxosSessionDestroy(odd) == 0); /* open still */
    none(odd, EBADF);
    free(room);
    free(copy);
    free(s);
}

static void paths(struct Session* s)
{
    FileStat_t stat;
    char deep[600] = "";
    int level;
    for (level = 0; level < 100; level++)
        strcat(deep, "/d");
    FAILS(PFSMkdir(s, NULL), EINVAL);
    FAILS(PFSMkdir(s, ""), EINVAL);
    FAILS(PFSMkdir(s, "relative"), EINVAL);
    FAILS(PFSMkdir(s, "/a/../b"), EINVAL);
    FAILS(PFSMkdir(s, "/a//b"), EINVAL);
    FAILS(PFSMkdir(s, "/\xff\xfe"), EILSEQ);
    FAILS(PFSMkdir(s, repeated('p', 300)), ENAMETOOLONG);
    FAILS(PFSMkdir(s, repeated('/', 5000)), ENAMETOOLONG);
    FAILS(PFSMkdir(s, endless), ENAMETOOLONG);
    FAILS(PFSMkdir(s, deep), EINVAL);
    FAILS(PFSStat(s, "/bad", NULL), EINVAL);
    FAILS(PFSRename(s, "/bad", NULL), EINVAL);
    FAILS(PFSRename(s, NULL, "/bad"), EINVAL);
    FAILS(PFSTruncate(s, "/bad", -1), EINVAL);
    FAILS(PFSTruncate(s, "/bad", LONG_MAX), EFBIG);
    FAILS(PFSMkdir(s, "/"), EEXIST);
    EXPECT(PFSRmdir(s, "/") < 0);
    FAILS(PFSStat(s, "/bad/below", &stat), ENOTDIR);
    EXPECT(PFSStat(s, "/bad", &stat) == 0 && stat.Length == 1);
}

static void files(struct Session* s)
{
    char data[8] = "data", foreign[4096];
    int32_t count;
    FileDirent_t entry;
    File_t* f;
    memset(foreign, 0x5a, sizeof foreign);
    EXPECT(PFSOpen(s, NULL, 0) == NULL);
    EXPECT(PFSOpen(s, endless, 0) == NULL);
    EXPECT(PFSOpen(s, "/bad", 2) == NULL);
    EXPECT(PFSOpen(s, "/bad", -1) == NULL);
    FAILS(PFSClose(NULL), EINVAL);
    FAILS(PFSRead(NULL, data, 1), EINVAL);
    FAILS(PFSWrite(NULL, data, 1), EINVAL);
    FAILS(PFSLseek(NULL, 0), EINVAL);
    FAILS(PFSClose((File_t*)(void*)foreign), EBADF);
    FAILS(PFSRead((File_t*)(void*)foreign, data, 1), EBADF);
    FAILS(PFSWrite((File_t*)(void*)(foreign + 1), data, 1), EBADF);
    FAILS(PFSClose((File_t*)(void*)s), EBADF); /* a session is no file */
    f = PFSOpen(s, "/bad", 0);
    EXPECT(f != NULL);
    none((struct Session*)(void*)foreign, EBADF);
    FAILS(PFSRead(f, NULL, 1), EINVAL);
    FAILS(PFSRead(f, data, (size_t)-1), EINVAL);
    FAILS(PFSWrite(f, NULL, 1), EINVAL);
    FAILS(PFSWrite(f, data, (size_t)-1), EINVAL);
    FAILS(PFSWrite(f, data, (size_t)PFS_WRITE_MAX + 1), EFBIG);
    FAILS(PFSAppend(f, data, (size_t)-1), EINVAL);
    FAILS(PFSReplaceIfVersion(f, data, (size_t)-1, 0), EINVAL);
    FAILS(PFSReplaceIfLocked(f, data, 1, NULL, 0), EINVAL);
    FAILS(PFSReplaceIfLocked(f, data, 1, "nobody holds it", 1), ESTALE);
    FAILS(PFSLseek(f, LONG_MIN), EINVAL);
    EXPECT(PFSLseek(f, LONG_MAX) == 0);
    FAILS(PFSWrite(f, "x", 1), EFBIG);
    EXPECT(PFSRead(f, data, sizeof data) == 0);
    EXPECT(PFSClose(f) == 0);
    count = -1;
    FAILS(PFSReadDir(s, "/", &entry, 0, &count), EINVAL);
    count = 1;
    FAILS(PFSReadDir(s, "/", &entry, -1, &count), EINVAL);
    FAILS(PFSReadDir(s, "/", NULL, 0, &count), EINVAL);
    FAILS(PFSReadDir(s, "/", &entry, 0, NULL), EINVAL);
    FAILS(PFSReadDir(s, "/bad", &entry, 0, &count), ENOTDIR);
    count = 0;
    EXPECT(PFSReadDir(s, "/", NULL, 0, &count) == 0 && count == 0);
}

static void names(struct Session* s)
{
    char data[8];
    int length = sizeof data;
    uint64_t number;
    PaxosClientId_t id = {12345};
    int32_t count, omitted;
    FAILS(PFSLockW(s, NULL), EINVAL);
    FAILS(PFSLockW(s, ""), EINVAL);
    FAILS(PFSLockR(s, endless), ENAMETOOLONG);
    FAILS(PFSLockW(s, repeated('l', 256)), ENAMETOOLONG);
    FAILS(PFSLockW(s, "\xc3"), EILSEQ);
    FAILS(PFSUnlock(s, "never"), EPERM);
    FAILS(PFSLockNumber(s, "never", &number), EPERM);
    EXPECT(PFSLockW(s, repeated('l', 255)) == 0);
    FAILS(PFSLockNumber(s, text, NULL), EINVAL);
    FAILS(PFSLockR(s, text), EDEADLK);
    EXPECT(PFSUnlock(s, text) == 0);

    FAILS(PFSPost(s, NULL, 1, "x"), EINVAL);
    FAILS(PFSPost(s, endless, 1, "x"), ENAMETOOLONG);
    FAILS(PFSPost(s, "q", -1, "x"), EINVAL);
    FAILS(PFSPost(s, "q", 1, NULL), EINVAL);
    FAILS(PFSPost(s, "q", PFS_WRITE_MAX + 1, "x"), EFBIG);
    FAILS(PFSWait(s, "q", NULL, data), EINVAL);
    FAILS(PFSWait(s, "q", &length, NULL), EINVAL);
    length = -5;
    FAILS(PFSWait(s, "q", &length, data), EINVAL);
    FAILS(PFSPeekMsg(s, "q", &length, data), EINVAL);
    length = sizeof data;
    FAILS(PFSPeekMsgId(s, "q", &length, data, NULL), EINVAL);
    FAILS(PFSReceive(s, "q", &length, data, NULL, 0), EINVAL);
    FAILS(PFSDeleteMsg(s, "q", NULL), EINVAL);
    FAILS(PFSDeleteMsg(s, "q", &id), ENOMSG);
    FAILS(PFSAck(s, "q", NULL), EINVAL);
    FAILS(PFSEventDirSet(s, NULL), EINVAL);
    FAILS(PFSEventDirSet(s, "relative"), EINVAL);
    FAILS(PFSEventLockSet(s, endless), ENAMETOOLONG);
    FAILS(PFSEventQueueCancel(s, NULL), EINVAL);
    FAILS(PFSEventGet(s, NULL, &omitted), EINVAL);
    FAILS(PFSEventGet(s, &count, NULL), EINVAL);
}

static void messages(struct Session* s)
{
    char *reply, member[4], nonsense[3] = {99, 1, 2};
    size_t length;
    FAILS(PaxosSessionReqAndRplByMsg(s, 1, NULL, 1, &reply, &length), EINVAL);
    FAILS(PaxosSessionReqAndRplByMsg(s, 1, nonsense, 3, NULL, &length), EINVAL);
    FAILS(PaxosSessionReqAndRplByMsg(s, 1, nonsense, 3, &reply, NULL), EINVAL);
    FAILS(PaxosSessionReqAndRplByMsg(s, 1, nonsense, (size_t)-1, &reply, &length), EINVAL);
    FAILS(PaxosSessionReqAndRplByMsg(s, 1, nonsense, (size_t)1 << 40, &reply, &length), EFBIG);
    /* Bytes that are no command are answered so, by the application. */
    EXPECT(PaxosSessionReqAndRplByMsg(s, 1, nonsense, 3, &reply, &length) == 0);
    EXPECT(length > 2 && reply[0] == 11);
    free(reply);
    FAILS(PaxosSessionGetId(s, NULL), EINVAL);
    FAILS(PaxosSessionGetMember(s, -1, member, sizeof member), EINVAL);
    FAILS(PaxosSessionGetMember(s, 1000, member, sizeof member), ENOENT);
    FAILS(PaxosSessionGetMember(s, 0, member, sizeof member), ERANGE);
    FAILS(PaxosSessionGetMember(s, 0, NULL, 100), ERANGE);
}

int main(void)
{
    struct Session* s;
    memset(endless, 'e', sizeof endless);
    endless[0] = '/';
    sessions();
    s = begin(1);
    paths(s);
    files(s);
    names(s);
    messages(s);
    EXPECT(PFSDelete(s, "/bad") == 0);
    end(s);
    say("ok");
    return 0;
}
