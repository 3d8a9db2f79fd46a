/* A configuration that is followed as it changes: configuration DIRECTORY
 *
 * Every file of the directory is a setting. The events say which one changed; when too many came to keep them all,
 * the count of omitted ones says so, and everything is read again. */
#include <errno.h>
#include <pfs.h>
#include <stdio.h>
#include <stdlib.h>

#define PAGE 64

static int fail(struct Session* s, const char* what)
{
    fprintf(stderr, "%s: %s\n", what, PaxosSessionGetErr(s));
    return 1;
}

static void show(struct Session* s, const char* directory, const char* name)
{
    char path[PFS_PATH_MAX + PFS_NAME_MAX + 2], value[4096];
    File_t* f;
    int length;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    f = PFSOpen(s, path, 0);
    length = f == NULL ? -1 : PFSRead(f, value, sizeof value - 1);
    if (length >= 0) {
        value[length] = 0;
        printf("%s = %s\n", name, value);
    } else if (errno != ENOENT) { /* deleted meanwhile: that is an event of its own */
        fail(s, path);
    }
    if (f != NULL)
        PFSClose(f);
    fflush(stdout);
}

static int show_all(struct Session* s, char* directory)
{
    static FileDirent_t entries[PAGE];
    int32_t index = 0, count = PAGE, entry;
    for (;; index += count) {
        count = PAGE;
        if (PFSReadDir(s, directory, entries, index, &count) < 0)
            return errno == ENOENT ? 0 : fail(s, directory); /* not there yet: nothing is set */
        if (count == 0)
            return 0;
        for (entry = 0; entry < count; entry++)
            if (!entries[entry].Stat.Directory)
                show(s, directory, entries[entry].Name);
    }
}

int PFSEventDir(struct Session* s, FileEventDir_t* event)
{
    if (event->Change == PFS_DELETED)
        printf("%s is gone\n", event->Name);
    else
        show(s, event->Path, event->Name);
    fflush(stdout);
    return 0;
}

int main(int argc, char** argv)
{
    struct Session* s = malloc(PaxosSessionGetSize());
    int32_t count, omitted = 0;
    if (argc != 2 || s == NULL) {
        fprintf(stderr, "usage: configuration DIRECTORY\n");
        return 2;
    }
    if (PaxosSessionInit(s, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) < 0 || PaxosSessionOpen(s, 0, 1) < 0)
        return fail(s, "open");
    /* Watched first, read then: what changes between the two is seen twice, not missed. */
    if (PFSEventDirSet(s, argv[1]) < 0 || show_all(s, argv[1]) != 0)
        return fail(s, argv[1]);
    printf("watching %s\n", argv[1]);
    fflush(stdout);
    while (PFSEventGet(s, &count, &omitted) == 0)
        if (omitted > 0 && show_all(s, argv[1]) != 0)
            break;
    return fail(s, "events");
}
