/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See load_options.h. Main thread.
 *
 * Why calls instead of kinds of the option table: the library parses these words, so that the
 * words of the command line and those of the API can't differ. Each static error outlives its
 * call, since the reason is printed by the caller; one thread, one option at a time.
 */
#include "src/cli/load_options.h"

/* Shared by all commands: only one runs in a process. */
ech_load_options ech_cli_load = { .kv_type = ECH_KV_F16, .compute = ECH_COMPUTE_F32 };

const char *ech_cli_take_quantize(const char *const name, const char *const value)
{
    static ech_error err;
    (void)name;
    return ech_quantize_parse(value, &ech_cli_load.quantize, &err) == ECH_OK ? NULL : err.text;
}

const char *ech_cli_take_load(const char *const name, const char *const value)
{
    static ech_error err;
    (void)name;
    return ech_load_parse(value, &ech_cli_load.load, &err) == ECH_OK ? NULL : err.text;
}

const char *ech_cli_take_kv_type(const char *const name, const char *const value)
{
    static ech_error err;
    (void)name;
    return ech_kv_type_parse(value, &ech_cli_load.kv_type, &err) == ECH_OK ? NULL : err.text;
}

const char *ech_cli_take_compute(const char *const name, const char *const value)
{
    static ech_error err;
    (void)name;
    return ech_compute_parse(value, &ech_cli_load.compute, &err) == ECH_OK ? NULL : err.text;
}

/*
 * Strings are pointers into argv, the environment or the config file's copies: they live as long
 * as the program.
 */
void ech_take_load_options(ech_engine_options *const o)
{
    o->quantize = ech_cli_load.quantize;
    o->load = ech_cli_load.load;
    o->kv_type = ech_cli_load.kv_type;
    o->compute = ech_cli_load.compute;
    o->cache_dir = ech_cli_load.cache_dir;
    o->packed = ech_cli_load.packed;
    o->no_cache = ech_cli_load.no_cache;
}
