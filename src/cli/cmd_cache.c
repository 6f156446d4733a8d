/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `echelon cache list|clear`: what packed weights lie on the disk, and getting rid of them.
 *
 * The folder is the one that loading uses (--cache-dir, else the default), read by the library;
 * nothing here knows how a file of it is made. Clearing says what it has removed, so that a
 * script sees when it was nothing. Left out: removing single files; they are made anew when they
 * are needed. Main thread.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include "echelon/model.h"
#include "src/cli/commands.h"
#include "src/cli/json_out.h"
#include "src/cli/load_options.h"

static bool as_json;

/* Decimal, as `inspect` and file managers show sizes. */
static double in_mb(const uint64_t bytes)
{
    return (double)bytes / 1e6;
}

/* Local time, for people; JSON has seconds. */
static const char *time_text(const int64_t s, char buf[32])
{
    struct tm tm;
    const time_t t = (time_t)s;
    if (s == 0 || localtime_r(&t, &tm) == NULL || strftime(buf, 32, "%Y-%m-%d %H:%M", &tm) == 0)
        return "-";
    return buf;
}

/*
 * Unfinished is what a writer that was killed has left; unusable what another version or a
 * broken disk has.
 */
static const char *state_of(const ech_cache_entry *const e)
{
    return e->unfinished ? "unfinished" : e->usable ? "usable" : "unusable";
}

/*
 * What can't be used has no type and no model to show; its state stands there instead. All of
 * them count in the sum: they take the room.
 */
static void print_entries(const ech_cache_entry *const list, const size_t n)
{
    uint64_t total = 0;
    if (n > 0) (void)printf("%10s  %-5s %-16s  %s\n", "MB", "type", "last use", "model");
    for (size_t i = 0; i < n; i++) {
        char buf[32];
        total += list[i].bytes;
        (void)printf("%10.1f  %-5s %-16s  %s\n", in_mb(list[i].bytes),
                     list[i].usable ? list[i].type : "-", time_text(list[i].used_s, buf),
                     list[i].usable ? list[i].model : state_of(&list[i]));
    }
    (void)printf("%zu file%s, %.1f MB\n", n, n == 1 ? "" : "s", in_mb(total));
}

/* NULL when a path isn't UTF-8 or memory ends; printing then fails as a whole. */
static json_t *entry_json(const ech_cache_entry *const e)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I}", "path", e->path, "state",
                     state_of(e), "model", e->model, "architecture", e->architecture, "type",
                     e->type, "bytes", (json_int_t)e->bytes, "created", (json_int_t)e->created_s,
                     "last_use", (json_int_t)e->used_s);
}

static int list_files(void)
{
    ech_cache_entry *list = NULL;
    size_t n = 0;
    ech_error err;
    if (ech_cache_list(ech_cli_load.cache_dir, &list, &n, &err) != ECH_OK) return ech_report(&err);
    int rc = ECH_EXIT_OK;
    if (as_json) {
        json_t *const all = json_array();
        for (size_t i = 0; i < n; i++)
            (void)json_array_append_new(all, entry_json(&list[i]));
        rc = ech_print_json(json_pack("{s:o}", "files", all), "the cache");
    } else {
        print_entries(list, n);
    }
    free(list);
    return rc;
}

static int clear_files(void)
{
    size_t n = 0;
    uint64_t bytes = 0;
    ech_error err;
    if (ech_cache_clear(ech_cli_load.cache_dir, &n, &bytes, &err) != ECH_OK)
        return ech_report(&err);
    if (as_json)
        return ech_print_json(
            json_pack("{s:I, s:I}", "files", (json_int_t)n, "bytes", (json_int_t)bytes),
            "the cache");
    (void)printf("removed %zu file%s, %.1f MB\n", n, n == 1 ? "" : "s", in_mb(bytes));
    return ECH_EXIT_OK;
}

/* One word is needed: `clear` must not be what a mistyped option ends in. */
static int run(const int argc, char **const argv)
{
    if (argc == 1 && strcmp(argv[0], "list") == 0) return list_files();
    if (argc == 1 && strcmp(argv[0], "clear") == 0) return clear_files();
    return ech_usage_error("cache takes 'list' or 'clear'%s%s", argc > 0 ? ", not " : "",
                           argc > 0 ? argv[argc - 1] : "");
}

static const ech_option OPTIONS[] = {
    ECH_CACHE_DIR_OPTION,
    { "json", 0, ECH_OPT_FLAG, &as_json, NULL, "print one JSON object", 0, 0, NULL },
};

const ech_command ech_cmd_cache = {
    "cache",
    "list|clear",
    "what packed weights lie on the disk, and removing them",
    "echelon cache list\nechelon cache clear",
    OPTIONS,
    sizeof OPTIONS / sizeof OPTIONS[0],
    run,
};
