/* Files, offsets, directories and their errors. "halfway" is said once: the master may be killed from then on. */
#include "expect.h"

#define ENTRIES 2500
#define PAGE 700

static void offsets(struct Session* s)
{
    char buffer[64];
    File_t* f = PFSOpen(s, "/files/offsets", 0);
    EXPECT(f != NULL);
    FAILS(PFSRead(f, buffer, sizeof buffer), ENOENT); /* a read never creates */
    EXPECT(PFSWrite(f, "hello ", 6) == 6);
    EXPECT(PFSWrite(f, "world", 5) == 5);
    EXPECT(PFSRead(f, buffer, sizeof buffer) == 0);
    EXPECT(PFSLseek(f, 6) == 0);
    EXPECT(PFSRead(f, buffer, 3) == 3 && memcmp(buffer, "wor", 3) == 0);
    EXPECT(PFSRead(f, buffer, sizeof buffer) == 2 && memcmp(buffer, "ld", 2) == 0);
    EXPECT(PFSLseek(f, 13) == 0);
    EXPECT(PFSWrite(f, "!", 1) == 1);
    EXPECT(PFSLseek(f, 0) == 0);
    EXPECT(PFSRead(f, buffer, sizeof buffer) == 14 && memcmp(buffer, "hello world\0\0!", 14) == 0);
    EXPECT(PFSAppend(f, "end", 3) == 3);
    EXPECT(PFSWrite(f, ".", 1) == 1);
    EXPECT(PFSWrite(f, "", 0) == 0);
    FAILS(PFSLseek(f, -1), EINVAL);
    EXPECT(PFSClose(f) == 0);
    EXPECT(strlen(get(s, "/files/offsets", buffer, sizeof buffer)) == 11);
}

static void versions(struct Session* s)
{
    FileStat_t stat, again;
    char buffer[64];
    File_t* f = PFSOpen(s, "/files/versions", 0);
    EXPECT(f != NULL);
    EXPECT(PFSReplaceIfVersion(f, "one", 3, 0) == 3);
    FAILS(PFSReplaceIfVersion(f, "two", 3, 0), ESTALE);
    EXPECT(PFSStat(s, "/files/versions", &stat) == 0);
    EXPECT(stat.Length == 3 && !stat.Directory && !stat.Ephemeral && stat.Session == 0);
    EXPECT(stat.Created > 0 && stat.Modified >= stat.Created);
    EXPECT(PFSReplaceIfVersion(f, "three", 5, stat.Version) == 5);
    EXPECT(PFSStat(s, "/files/versions", &again) == 0 && again.Version > stat.Version);
    EXPECT(strcmp(get(s, "/files/versions", buffer, sizeof buffer), "three") == 0);
    EXPECT(PFSTruncate(s, "/files/versions", 2) == 0);
    EXPECT(strcmp(get(s, "/files/versions", buffer, sizeof buffer), "th") == 0);
    EXPECT(PFSRename(s, "/files/versions", "/files/moved") == 0);
    FAILS(PFSStat(s, "/files/versions", &stat), ENOENT);
    FAILS(PFSRename(s, "/files/moved", "/files/offsets"), EEXIST);
    EXPECT(PFSDelete(s, "/files/moved") == 0);
    FAILS(PFSDelete(s, "/files/moved"), ENOENT);
    EXPECT(PFSClose(f) == 0);
}

static void ephemerals(struct Session* s)
{
    struct Session* other = begin(2);
    FileStat_t stat;
    uint64_t id;
    File_t* f = PFSOpen(other, "/files/ephemeral", FILE_EPHEMERAL);
    EXPECT(PFSWrite(f, "x", 1) == 1);
    EXPECT(PaxosSessionGetId(other, &id) == 0);
    EXPECT(PFSStat(s, "/files/ephemeral", &stat) == 0);
    EXPECT(stat.Ephemeral == 1 && stat.Session == id);
    EXPECT(PaxosSessionClose(other) == 0);
    FAILS(PFSStat(s, "/files/ephemeral", &stat), ENOENT);
    FAILS(PFSWrite(f, "x", 1), ENOTCONN);
    EXPECT(PFSClose(f) == 0);
    EXPECT(PaxosSessionDestroy(other) == 0);
    free(other);
}

static void directories(struct Session* s)
{
    FileStat_t stat;
    int32_t count = 1;
    FileDirent_t entry;
    EXPECT(PFSMkdir(s, "/files/a/b") == 0);
    FAILS(PFSMkdir(s, "/files/a/b"), EEXIST);
    FAILS(PFSRmdir(s, "/files/a"), ENOTEMPTY);
    FAILS(PFSDelete(s, "/files/a"), EISDIR);
    FAILS(PFSRmdir(s, "/files/offsets"), ENOTDIR);
    FAILS(PFSReadDir(s, "/files/none", &entry, 0, &count), ENOENT);
    EXPECT(PFSReadDir(s, "/files/a", &entry, 0, &count) == 0);
    EXPECT(count == 1 && strcmp(entry.Name, "b") == 0 && entry.Stat.Directory == 1);
    EXPECT(PFSStat(s, "/files/a", &stat) == 0 && stat.Directory == 1 && stat.Length == 1);
    EXPECT(PFSRmdir(s, "/files/a/b") == 0);
    EXPECT(PFSRmdir(s, "/files/a") == 0);
    FAILS(PFSRmdir(s, "/files/a"), ENOENT);
}

/* Pages in one order, none twice, none left out; a page may be larger than what the cell gives at once. */
static void paging(struct Session* s)
{
    static FileDirent_t entries[ENTRIES + 10];
    char name[64];
    int32_t index, count;
    for (index = 0; index < ENTRIES; index++) {
        snprintf(name, sizeof name, "/files/many/%06d", index);
        put(s, name, "x");
        if (index == ENTRIES / 2)
            say("halfway");
    }
    for (index = 0; index < ENTRIES; index += count) {
        count = PAGE;
        EXPECT(PFSReadDir(s, "/files/many", entries + index, index, &count) == 0);
        EXPECT(count == (ENTRIES - index < PAGE ? ENTRIES - index : PAGE));
    }
    for (index = 0; index < ENTRIES; index++)
        EXPECT(atoi(entries[index].Name) == index && entries[index].Stat.Length == 1);
    count = PAGE;
    EXPECT(PFSReadDir(s, "/files/many", entries, ENTRIES, &count) == 0 && count == 0);
    count = ENTRIES + 10;
    EXPECT(PFSReadDir(s, "/files/many", entries, 0, &count) == 0 && count == ENTRIES);
    EXPECT(strcmp(entries[ENTRIES - 1].Name, "002499") == 0);
}

int main(void)
{
    struct Session* s = begin(1);
    EXPECT(PaxosSessionGetState(s) == PAXOS_SESSION_SAFE);
    offsets(s);
    versions(s);
    ephemerals(s);
    directories(s);
    paging(s);
    end(s);
    say("ok");
    return 0;
}
