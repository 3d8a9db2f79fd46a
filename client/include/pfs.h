/* pfs.h: sessions, files, locks, events and queues of a kumo cell, for C99 and C++.
 *
 * The functions of the Paxos cloud's slides have their names, arguments and order; what is marked "addition" is ours.
 * Link with -lpfs (pkg-config pfs). See pfs(3).
 *
 * RETURN VALUES. Calls that return int return -1 when they fail, PFSOpen returns NULL; errno then has the reason and
 * PaxosSessionGetErr a sentence. A call that fails with
 *     ECONNABORTED  the session is lost: its locks and ephemeral files may be gone; close it and open it again
 *     ENOTCONN      the session is not open (any more)
 *     EHOSTUNREACH  no member of the cell answers      EHOSTDOWN  they answer, but have no master
 * may or may not have made its change; after every other failure nothing was changed. Others that are common:
 *     ENOENT EEXIST ENOTDIR EISDIR ENOTEMPTY  as for files        EFBIG      one write, message or file is too large
 *     ENAMETOOLONG  a path or name is too long                    ENOSPC     a quota of the cell
 *     EBUSY         a Try form: another session holds the lock    ETIMEDOUT  not served in time
 *     EDEADLK       this session holds or awaits the lock         EPERM      not held by this session; forked
 *     ESTALE        not that version or fencing number any more   ENOMSG     the queue is empty, no such message
 *     EMSGSIZE      the buffer is too small for the message       EINVAL     NULL, a negative length, a bad path
 *     EBADF         not a session, not an open file               EILSEQ     a name is not UTF-8
 *
 * DUTIES. Pointers are NULL, which is refused, or valid for what is read and written there. A session's memory has
 * PaxosSessionGetSize() bytes and stays where it is between PaxosSessionInit and PaxosSessionDestroy.
 *
 * THREADS. A session is used by one thread at a time, but for this: another thread may call PaxosSessionClose, which
 * ends a call that waits. Threads that work at the same time have a session each. The library has a thread of its own
 * for every open session; it takes no signals.
 *
 * FORK. A session belongs to the process that opened it. In a child every call on it fails with EPERM, except
 * PaxosSessionDestroy, which leaves the parent's session alone; the child may init and open sessions of its own.
 * A file of an inherited session may be closed in the child.
 */
#ifndef PFS_H
#define PFS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

/* The slides say char* also for what is only read. C keeps that; C++ could not pass literals. */
#ifndef PFS_CONST
#ifdef __cplusplus
#define PFS_CONST const
#else
#define PFS_CONST
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The headers of RPC have the same one. */
#if !defined(_RPC_TYPES_H) && !defined(_TIRPC_TYPES_H)
typedef int bool_t;
#endif

/* A session; its inside is the library's. */
struct Session;

/* An open file: a path and an offset. */
typedef struct File File_t;

#define PFS_NAME_MAX 255              /* bytes of a name in a path, and of a lock's or queue's name */
#define PFS_PATH_MAX 4096             /* bytes of a path */
#define PFS_WRITE_MAX (64 * 1024 * 1024) /* bytes of one write or message */

/* Flags of PFSOpen. */
#define FILE_EPHEMERAL 1 /* if a write creates the file, it goes when the session ends */

/* What the cell knows of a file or directory. */
typedef struct FileStat {
    uint64_t Length;   /* bytes of a file, entries of a directory */
    uint64_t Version;  /* grows with every change */
    int64_t Created;   /* milliseconds since 1970 */
    int64_t Modified;
    uint64_t Session;  /* whose end removes it; 0: nobody's. See PaxosSessionGetId */
    int32_t Directory; /* 1: a directory */
    int32_t Ephemeral; /* 1: it goes with its session */
} FileStat_t;

/* An entry of a directory. */
typedef struct FileDirent {
    char Name[PFS_NAME_MAX + 1];
    FileStat_t Stat;
} FileDirent_t;

/* What happened to an entry of a directory. */
#define PFS_CREATED 1
#define PFS_UPDATED 2
#define PFS_DELETED 3

typedef struct FileEventDir {
    char Path[PFS_PATH_MAX + 1]; /* the directory that is watched */
    char Name[PFS_NAME_MAX + 1]; /* the entry */
    int32_t Change;              /* PFS_CREATED, PFS_UPDATED or PFS_DELETED */
    uint64_t Number;             /* events of a session have consecutive numbers, omitted ones included */
} FileEventDir_t;

/* Someone waits for a lock. */
typedef struct FileEventLock {
    char Name[PFS_NAME_MAX + 1];
    int32_t Exclusive; /* 1: for writing */
    uint64_t Number;
} FileEventLock_t;

/* What happened to a queue: a message was posted, or someone waits for one. */
#define PFS_POSTED 1
#define PFS_WAITING 2

typedef struct FileEventQueue {
    char Name[PFS_NAME_MAX + 1];
    int32_t Change; /* PFS_POSTED or PFS_WAITING */
    uint64_t Number;
} FileEventQueue_t;

/* Which message of a queue: from PFSPeekMsgId or PFSReceive. No two messages of a cell ever have the same. */
typedef struct PaxosClientId {
    uint64_t Number;
} PaxosClientId_t;

/* ---- sessions -------------------------------------------------------------------------------------------------- */

/* Bytes of a struct Session, for any alignment. */
size_t PaxosSessionGetSize(void);

/* Makes a session of the caller's memory, whatever is in it.
 *
 * The first six functions are a transport of the program's own. NULL for all of them means TCP. fConnect, fShutdown,
 * fClose, fSendTo and fRecvFrom come together, fGetMyAddr may be left out.
 *     fConnect    connects to the Id-th member (from 0, in the order of the list of members; members that join later
 *                 get the next numbers, see PaxosSessionGetMember) and returns a handle, NULL if it cannot. It may
 *                 block, but should give up within seconds: closing the session waits for it. There may be two
 *                 connections with one member: renewals of the session go beside what is large.
 *     fShutdown   makes fSendTo and fRecvFrom on the handle return; its second argument is SHUT_RDWR.
 *     fClose      frees the handle; nothing else uses it then.
 *     fGetMyAddr  puts this side's address into a struct sockaddr_storage; negative when it has none.
 *     fSendTo     sends some of Len bytes of a stream: how many, at least 1; negative when the connection is gone.
 *     fRecvFrom   waits for bytes of a stream, at most Len: how many; 0 at its end, negative when it is gone.
 * The flags are 0. They are called on threads of the library; one thread sends while another receives on the same handle.
 * They must not call functions on the session, except PaxosSessionGetMember.
 *
 * fMalloc and fFree come together: memory for a File_t and for a reply of PaxosSessionReqAndRplByMsg. NULL: malloc, free.
 */
int PaxosSessionInit(struct Session* pSession,
                     void* (*fConnect)(struct Session*, int),
                     int (*fShutdown)(void*, int),
                     int (*fClose)(void*),
                     int (*fGetMyAddr)(void*, struct sockaddr*),
                     int (*fSendTo)(void*, char*, size_t, int),
                     int (*fRecvFrom)(void*, char*, size_t, int),
                     void* (*fMalloc)(size_t),
                     void (*fFree)(void*));

/* Closes the session if it is open, and gives the memory back to the caller. */
int PaxosSessionDestroy(struct Session* pSession);

/* Opens the session. No: a number of the program's own, shown in listings. Sync: reads are linearizable, at the
 * master; otherwise the least-loaded replica serves them, never older than the session's own updates. */
int PaxosSessionOpen(struct Session* pSession, int No, bool_t Sync);

/* Ends the session: its locks are freed, its ephemeral files go, its received messages go back. When it fails, the
 * cell could not be told and ends the session by itself later; on this side it is closed in any case. */
int PaxosSessionClose(struct Session* pSession);

/* Durable replicas write a snapshot now. */
int PaxosSessionSnapshot(struct Session* pSession);

/* Sends a request in the bytes of whatever application the cell runs: an update through the log, or a question.
 * *ppRpl is from fMalloc and the caller's to free. */
int PaxosSessionReqAndRplByMsg(struct Session* pSession, bool_t Update, PFS_CONST char* pReq, size_t ReqLen,
                               char** ppRpl, size_t* pRplLen);

/* Addition: the members of the cell, "ADDR[:PORT],ADDR[:PORT],..."; some that answer are enough, the port is 19700
 * unless given. Before the session is opened. Without it the environment's KUMO_CELL counts, or 127.0.0.1:19700. */
int PaxosSessionSetCell(struct Session* pSession, PFS_CONST char* Members);

/* Addition: what went wrong in this thread's last call that failed, of whatever session. Valid until the next one. */
const char* PaxosSessionGetErr(struct Session* pSession);

/* Addition: how the session stands. */
#define PAXOS_SESSION_OPENING 0
#define PAXOS_SESSION_SAFE 1
#define PAXOS_SESSION_JEOPARDY 2 /* not renewed for long: the cell may be without a majority */
#define PAXOS_SESSION_LOST 3     /* over, or so long without renewal that it may be */
int PaxosSessionGetState(struct Session* pSession);

/* Addition: the session's id, as in FileStat_t; `kumo session ls` writes it as its upper 16 bits, a dot, and the rest. */
int PaxosSessionGetId(struct Session* pSession, uint64_t* pId);

/* Addition: the address of the Id-th member as text. For an fConnect. */
int PaxosSessionGetMember(struct Session* pSession, int Id, char* pBuf, size_t Len);

/* ---- files ----------------------------------------------------------------------------------------------------- */

/* A file with an offset of its own, 0 first; nothing is asked of the cell. Path is absolute; Flags 0 or FILE_EPHEMERAL. */
File_t* PFSOpen(struct Session* pSession, PFS_CONST char* Path, int Flags);

/* Frees the file's structure: a second close of it is the program's fault. */
int PFSClose(File_t* pF);

int PFSDelete(struct Session* pSession, PFS_CONST char* Path);

/* Sets the offset. */
int PFSLseek(File_t* pF, off_t Offset);

/* Up to Len bytes from the offset, which moves behind them: how many, 0 at the end. All are of one version of the
 * file; one that changes meanwhile makes a long read short. A file that does not exist is an error. */
int PFSRead(File_t* pF, char* pBuf, size_t Len);

/* Writes at the offset, which moves behind it; in one piece, at most PFS_WRITE_MAX bytes. Creates the file and its
 * directories if they are missing. Returns Len. */
int PFSWrite(File_t* pF, PFS_CONST char* pBuf, size_t Len);

/* Additions: at the end of the file; and in place of the whole file, if it still has that version (0: does not exist)
 * or if the lock is still held under that number. */
int PFSAppend(File_t* pF, PFS_CONST char* pBuf, size_t Len);
int PFSReplaceIfVersion(File_t* pF, PFS_CONST char* pBuf, size_t Len, uint64_t Version);
int PFSReplaceIfLocked(File_t* pF, PFS_CONST char* pBuf, size_t Len, PFS_CONST char* Lock, uint64_t Number);

/* Additions. */
int PFSStat(struct Session* pSession, PFS_CONST char* Path, FileStat_t* pStat);
int PFSTruncate(struct Session* pSession, PFS_CONST char* Path, off_t Length);
int PFSRename(struct Session* pSession, PFS_CONST char* From, PFS_CONST char* To);

/* ---- directories ----------------------------------------------------------------------------------------------- */

int PFSMkdir(struct Session* pSession, PFS_CONST char* Path);

/* Empty ones only. */
int PFSRmdir(struct Session* pSession, PFS_CONST char* Path);

/* *pN entries from the Ind-th on, in byte order of names; *pN becomes how many there were. */
int PFSReadDir(struct Session* pSession, PFS_CONST char* Path, FileDirent_t* pE, int32_t Ind, int32_t* pN);

/* ---- locks: advisory, by name, first come first served ----------------------------------------------------------- */

/* For writing, and for reading; both wait for ever. */
int PFSLockW(struct Session* pSession, PFS_CONST char* Name);
int PFSLockR(struct Session* pSession, PFS_CONST char* Name);
int PFSUnlock(struct Session* pSession, PFS_CONST char* Name);

/* Additions: EBUSY at once; ETIMEDOUT after Millis (0: tries, negative: for ever). */
int PFSTryLockW(struct Session* pSession, PFS_CONST char* Name);
int PFSTryLockR(struct Session* pSession, PFS_CONST char* Name);
int PFSLockWTimeout(struct Session* pSession, PFS_CONST char* Name, int Millis);
int PFSLockRTimeout(struct Session* pSession, PFS_CONST char* Name, int Millis);

/* Addition: the number of the grant, which grows with every one. ECONNABORTED when the session is lost. */
int PFSLockNumber(struct Session* pSession, PFS_CONST char* Name, uint64_t* pNumber);

/* ---- events ---------------------------------------------------------------------------------------------------- */

/* Set and Cancel return at once. A directory need not exist yet. */
int PFSEventDirSet(struct Session* pSession, PFS_CONST char* Path);
int PFSEventDirCancel(struct Session* pSession, PFS_CONST char* Path);
int PFSEventLockSet(struct Session* pSession, PFS_CONST char* Name);
int PFSEventLockCancel(struct Session* pSession, PFS_CONST char* Name);
int PFSEventQueueSet(struct Session* pSession, PFS_CONST char* Name);
int PFSEventQueueCancel(struct Session* pSession, PFS_CONST char* Name);

/* Waits for ever for an event, and calls the functions below for it and for all that came with it. *pCnt: how many;
 * *pOmitted: how many were dropped before them, because they were not fetched in time. */
int PFSEventGet(struct Session* pSession, int32_t* pCnt, int32_t* pOmitted);

/* Addition: ETIMEDOUT after Millis (0: tries, negative: for ever). */
int PFSEventGetTimeout(struct Session* pSession, int32_t* pCnt, int32_t* pOmitted, int Millis);

/* The program's own, found when it is linked; events it has no function for are counted only. They may call functions
 * on the session, but for PFSEventGet. A negative result ends PFSEventGet with ECANCELED: the rest comes next time. */
int PFSEventDir(struct Session* pSession, FileEventDir_t* pEvent);
int PFSEventLock(struct Session* pSession, FileEventLock_t* pEvent);
int PFSEventQueue(struct Session* pSession, FileEventQueue_t* pEvent);

/* ---- queues: first in, first out --------------------------------------------------------------------------------- */

int PFSPost(struct Session* pSession, PFS_CONST char* Queue, int Len, PFS_CONST char* Data);

/* Takes the first message; waits for ever. *Len: the size of Data, then that of the message. When Data is too small
 * (EMSGSIZE) *Len says what is needed, and this session gets the same message again. Data is filled before the message
 * is removed: after any other failure it may be there, with its *Len, and may or may not be handed out again. */
int PFSWait(struct Session* pSession, PFS_CONST char* Queue, int* Len, char* Data);

/* As PFSWait, but the message stays, and ENOMSG when there is none. */
int PFSPeekMsg(struct Session* pSession, PFS_CONST char* Queue, int* Len, char* Data);

/* Removes a message wherever it stands. */
int PFSDeleteMsg(struct Session* pSession, PFS_CONST char* Queue, PFS_CONST PaxosClientId_t* pId);

/* Additions: ETIMEDOUT after Millis (0: ENOMSG at once, negative: for ever); peek with the id for PFSDeleteMsg. */
int PFSWaitTimeout(struct Session* pSession, PFS_CONST char* Queue, int* Len, char* Data, int Millis);
int PFSPeekMsgId(struct Session* pSession, PFS_CONST char* Queue, int* Len, char* Data, PaxosClientId_t* pId);

/* Additions: the first message is hidden for this session until PFSAck; when the session ends before that, the next
 * one gets it. So a worker that dies loses no work. */
int PFSReceive(struct Session* pSession, PFS_CONST char* Queue, int* Len, char* Data, PaxosClientId_t* pId, int Millis);
int PFSAck(struct Session* pSession, PFS_CONST char* Queue, PFS_CONST PaxosClientId_t* pId);

#ifdef __cplusplus
}
#endif

#endif
