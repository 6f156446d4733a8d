/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `echelon pack`: packs a model ahead of its first use, into the cache or into a file.
 *
 * What it makes is what the first `generate` or `serve` with the same options would make; ahead
 * of time, so that a start isn't slow. Into the cache by default, where loading finds it; into a
 * file with -o, which --packed names again. A file that is there already is a success and said
 * so. Main thread; packing runs on all cores inside the library.
 */
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "src/cli/commands.h"
#include "src/cli/json_out.h"
#include "src/cli/load_options.h"

static const char *output;
static int64_t threads;
static bool as_json;

static int print_json(const ech_pack_report *const r)
{
    json_t *const root = json_pack("{s:s, s:b, s:I, s:I, s:f, s:f}", "path", r->path, "was_there",
                                   r->was_there, "source_bytes", (json_int_t)r->source_bytes,
                                   "packed_bytes", (json_int_t)r->packed_bytes, "pack_seconds",
                                   r->pack_s, "write_seconds", r->write_s);
    return ech_print_json(root, r->path);
}

/* Rates in GB per second of source, since that is what the disk reads. */
static int print_text(const ech_pack_report *const r)
{
    if (r->was_there) {
        (void)printf("packed before: %s\n", r->path);
        return ECH_EXIT_OK;
    }
    (void)printf("packed %.2f GB in %.2f s, %.2f GB/s; wrote %.2f GB in %.2f s\n%s\n",
                 (double)r->source_bytes / 1e9, r->pack_s,
                 (double)r->source_bytes / 1e9 / r->pack_s, (double)r->packed_bytes / 1e9,
                 r->write_s, r->path);
    return ECH_EXIT_OK;
}

/* The options of loading decide what is made: with other ones it would not be found again. */
static int run(const int argc, char **const argv)
{
    if (argc > 1) return ech_usage_error("pack takes one MODEL, not also '%s'", argv[1]);
    ech_engine_options o;
    ech_pack_report report;
    ech_error err;
    ech_engine_options_default(&o);
    ech_take_load_options(&o);
    o.model_dir = argc > 0 ? argv[0] : NULL;
    o.threads = (uint32_t)threads;
    if (ech_engine_pack(&o, output, &report, &err) != ECH_OK) return ech_report(&err);
    return as_json ? print_json(&report) : print_text(&report);
}

static const ech_option OPTIONS[] = {
    ECH_QUANTIZE_OPTION,
    { "output", 'o', ECH_OPT_STRING, &output, "FILE",
      "write there, for --packed; default: the cache", 0, 0, NULL },
    ECH_CACHE_DIR_OPTION,
    { "threads", 't', ECH_OPT_INT, &threads, "N", "cores; default: all that are there", 1, 256,
      NULL },
    { "json", 0, ECH_OPT_FLAG, &as_json, NULL, "print one JSON object", 0, 0, NULL },
};

const ech_command ech_cmd_pack = {
    "pack",
    "[MODEL]",
    "pack a model's weights ahead of their first use",
    "echelon pack models/tale\nechelon pack --quantize q4 -o tale.echelon models/tale\n"
    "echelon generate -m models/tale --quantize q4 --packed tale.echelon --load map -p 'Once'",
    OPTIONS,
    sizeof OPTIONS / sizeof OPTIONS[0],
    run,
};
