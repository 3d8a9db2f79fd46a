/* Events of directories, locks and queues, handed to this program's own functions. "halfway" is said once. */
#include "expect.h"

#define CHANGES 600

static int created, updated, deleted, waits, posts, waiting, refuse;
static uint64_t last;

static void follows(uint64_t number)
{
    EXPECT(last == 0 || number == last + 1); /* the first has the cell's generation above its count */
    last = number;
}

int PFSEventDir(struct Session* s, FileEventDir_t* e)
{
    EXPECT(s != NULL && strcmp(e->Path, "/events") == 0 && strcmp(e->Name, "f") == 0);
    follows(e->Number);
    created += e->Change == PFS_CREATED;
    updated += e->Change == PFS_UPDATED;
    deleted += e->Change == PFS_DELETED;
    return refuse ? -1 : 0;
}

int PFSEventLock(struct Session* s, FileEventLock_t* e)
{
    EXPECT(s != NULL && strcmp(e->Name, "events") == 0 && e->Exclusive == 1);
    follows(e->Number);
    waits++;
    /* A holder that is asked for its lock gives it, from within the event. */
    EXPECT(PFSUnlock(s, "events") == 0);
    return 0;
}

int PFSEventQueue(struct Session* s, FileEventQueue_t* e)
{
    EXPECT(s != NULL && strcmp(e->Name, "events") == 0);
    follows(e->Number);
    posts += e->Change == PFS_POSTED;
    waiting += e->Change == PFS_WAITING;
    return 0;
}

/* Until so many of a kind have come. */
static void until(struct Session* s, const int* kind, int wanted)
{
    while (*kind < wanted) {
        int32_t count = 0, omitted = 0;
        EXPECT(PFSEventGet(s, &count, &omitted) == 0);
        EXPECT(count > 0 && omitted == 0);
    }
    EXPECT(*kind == wanted);
}

int main(void)
{
    struct Session* watcher = begin(1);
    struct Session* actor = begin(2);
    int32_t count, omitted;
    char data[8];
    int length = sizeof data, change;
    FAILS(PFSEventGetTimeout(watcher, &count, &omitted, 0), ETIMEDOUT);
    EXPECT(PFSEventDirSet(watcher, "/events") == 0);
    EXPECT(PFSEventLockSet(watcher, "events") == 0);
    EXPECT(PFSEventQueueSet(watcher, "events") == 0);
    FAILS(PFSEventGetTimeout(watcher, &count, &omitted, 20), ETIMEDOUT);

    put(actor, "/events/f", "x");
    until(watcher, &created, 1);
    for (change = 0; change < CHANGES; change++) {
        put(actor, "/events/f", "x");
        if (change == CHANGES / 2)
            say("halfway");
        if (change % 50 == 49)
            until(watcher, &updated, change + 1);
    }
    EXPECT(PFSDelete(actor, "/events/f") == 0);
    until(watcher, &deleted, 1);

    EXPECT(PFSPost(actor, "events", 1, "x") == 0);
    until(watcher, &posts, 1);
    EXPECT(PFSWait(actor, "events", &length, data) == 0);
    FAILS(PFSWaitTimeout(actor, "events", &length, data, 20), ETIMEDOUT);
    until(watcher, &waiting, 1);

    /* The actor waits for the lock, the holder hears of it. A try that times out is enough to be heard. */
    EXPECT(PFSLockW(watcher, "events") == 0);
    FAILS(PFSLockWTimeout(actor, "events", 20), ETIMEDOUT);
    until(watcher, &waits, 1);
    EXPECT(PFSTryLockW(actor, "events") == 0);
    EXPECT(PFSUnlock(actor, "events") == 0);

    /* Refused in the middle, the rest comes with the next call. */
    created = updated = 0;
    put(actor, "/events/f", "x");
    put(actor, "/events/f", "y");
    refuse = 1;
    FAILS(PFSEventGet(watcher, &count, &omitted), ECANCELED);
    EXPECT(count == 1 && created == 1 && updated == 0);
    refuse = 0;
    until(watcher, &updated, 1);

    EXPECT(PFSEventDirCancel(watcher, "/events") == 0);
    EXPECT(PFSEventLockCancel(watcher, "events") == 0);
    EXPECT(PFSEventQueueCancel(watcher, "events") == 0);
    put(actor, "/events/f", "z");
    FAILS(PFSEventGetTimeout(watcher, &count, &omitted, 20), ETIMEDOUT);
    end(watcher);
    end(actor);
    say("ok");
    return 0;
}
