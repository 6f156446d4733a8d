/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table per command: it parses the command line, prints the help, the man page and the shell
 * completion, so that none of them can drift.
 *
 *     static const char *model_dir;
 *     static const ech_option OPTIONS[] = {
 *         { "model-dir", 0, ECH_OPT_STRING, &model_dir, "DIR", "the model's folder", .min = 0 },
 *     };
 *     static int run(int argc, char **argv) { … argc, argv: what is left after the options … }
 *     const ech_command ech_cmd_inspect = {
 *         "inspect", "MODEL", "what a model is made of", "echelon inspect models/tale",
 *         OPTIONS, sizeof OPTIONS / sizeof OPTIONS[0], run,
 *     };
 *
 * and a line in ECH_COMMAND_MAP. Precedence: flag > environment (ECHELON_ and the option's name in
 * upper case, '-' as '_') > a file (config.h) > the value the target holds before parsing.
 */
#ifndef ECH_CLI_OPTIONS_H
#define ECH_CLI_OPTIONS_H

#include "echelon/status.h"

/* Exit codes of the program. */
enum { ECH_EXIT_OK = 0, ECH_EXIT_FAILED = 1, ECH_EXIT_USAGE = 2 };

typedef enum ech_opt_kind {
    ECH_OPT_FLAG,    /* bool *: set to true; no value, never read from the environment */
    ECH_OPT_NO_FLAG, /* bool *: set to false (--no-special) */
    ECH_OPT_STRING,  /* const char ** */
    ECH_OPT_STRINGS, /* ech_strings *: may repeat; order kept */
    ECH_OPT_INT,     /* int64_t *: min..max when max > min; k, m, g suffixes are not taken */
    ECH_OPT_SIZE,    /* uint64_t *: bytes, with an optional suffix K, M, G (powers of 1024) */
    ECH_OPT_DOUBLE,  /* double *: finite, min..max when max > min */
    ECH_OPT_CALL,    /* ech_opt_call: for what the kinds above can't say */
} ech_opt_kind;

/* The values of an option that may repeat; pointers into argv. */
typedef struct ech_strings {
    const char **items;
    size_t count, cap;
} ech_strings;

/* Takes one value. Returns NULL when it is good, else why it isn't ("must be …"). */
typedef const char *(*ech_opt_call)(const char *name, const char *value);

typedef struct ech_option {
    const char *name; /* without the dashes */
    char short_name;  /* 0: none */
    ech_opt_kind kind;
    void *target;     /* as the kind says; unused for ECH_OPT_CALL */
    const char *arg;  /* name of the value in the help, NULL for flags */
    const char *help; /* one line, without a full stop; defaults belong here */
    double min, max;
    ech_opt_call call;
} ech_option;

typedef struct ech_command {
    const char *name;
    const char *args;    /* what follows the options in the usage line, "" for nothing */
    const char *summary; /* one line */
    const char *example; /* lines to copy, separated by '\n' */
    const ech_option *options;
    size_t n_options;
    int (*run)(int argc, char **argv); /* gets what the options left; returns the exit code */
    bool is_group;                     /* options are left to the command that run() picks */
} ech_command;

/*
 * Parses argv[1..), sets the targets, then calls run. Wrong usage: one line on stderr that names
 * the option and what it takes, and ECH_EXIT_USAGE. --help prints the help to stdout.
 */
int ech_command_main(const ech_command *cmd, int argc, char **argv);
/* Takes one value, NULL for a flag. Returns NULL when it is good, else why it isn't. */
const char *ech_option_set(const ech_option *o, const char *value);
void ech_command_help(const ech_command *cmd);
/* The page in man(7) format, to stdout. */
void ech_command_man(const ech_command *cmd);

/* Prints "echelon: TEXT" for err to stderr and returns the exit code of its status. */
int ech_report(const ech_error *err);
/* The same for wrong usage that only the command can see; returns ECH_EXIT_USAGE. */
int ech_usage_error(const char *fmt, ...) ECH_PRINTF_(1, 2);

#endif
