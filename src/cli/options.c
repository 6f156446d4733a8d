/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The option table at work. Invariant: a target is written only with a value that passed its
 * check. Runs once, on the main thread.
 *
 * Exit codes: 2 for everything that is wrong on the command line, in the environment or in the
 * file, always with one line that names the option as the user spelled it. Pointers of string
 * options go into argv, the environment or copies of config.c; nothing is freed, since the
 * program ends with the command.
 */
#include "src/cli/options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"
#include "src/cli/config.h"

/* The tables for getopt are on the stack; the largest command has some sixty. */
#define MAX_OPTIONS 96

int ech_report(const ech_error *const err)
{
    (void)fprintf(stderr, "echelon: %s\n", err->text);
    return ech_status_exit(err->code);
}

/* One line: what a user gave may hold line ends, which would look like another message. */
int ech_usage_error(const char *fmt, ...)
{
    char text[ECH_ERROR_TEXT];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ech_one_line(text);
    (void)fprintf(stderr, "echelon: %s\n", text);
    return ECH_EXIT_USAGE;
}

/* Calls always take one. */
static bool takes_value(const ech_option *const o)
{
    return o->kind != ECH_OPT_FLAG && o->kind != ECH_OPT_NO_FLAG;
}

/* The values' order is kept; the texts stay where they are. */
static const char *add_string(ech_strings *const list, const char *const value)
{
    if (list->count == list->cap) {
        const size_t cap = list->cap == 0 ? 8 : 2 * list->cap;
        const char **const items = realloc(list->items, cap * sizeof *items);
        if (items == NULL) return "does not fit in memory";
        list->items = items;
        list->cap = cap;
    }
    list->items[list->count++] = value;
    return NULL;
}

/* Blanks before it, which strtoll takes, are refused; so is what is left behind it. */
static const char *set_int(const ech_option *const o, const char *const value)
{
    char *end;
    errno = 0;
    const long long v = strtoll(value, &end, 10);
    if (isspace((unsigned char)value[0]) || end == value || *end != '\0' || errno != 0)
        return "must be a whole number";
    if (o->max > o->min && ((double)v < o->min || (double)v > o->max)) return "is out of range";
    *(int64_t *)o->target = v;
    return NULL;
}

static const char *set_double(const ech_option *const o, const char *const value)
{
    char *end;
    const double v = strtod(value, &end);
    /* No blanks before it, no hexadecimal, no names. */
    if (value[strspn(value, "0123456789+-.eE")] != '\0' || end == value || *end != '\0' ||
        !isfinite(v))
        return "must be a finite number";
    if (o->max > o->min && (v < o->min || v > o->max)) return "is out of range";
    *(double *)o->target = v;
    return NULL;
}

/* Powers of 1024; the shift is checked before it is done. */
static const char *set_size(const ech_option *const o, const char *const value)
{
    char *end;
    errno = 0;
    const unsigned long long v = strtoull(value, &end, 10);
    if (end == value || !isdigit((unsigned char)value[0]) || errno != 0) return "must be a size";
    static const char SUFFIXES[] = "kmgt";
    unsigned shift = 0;
    if (*end != '\0') {
        const char *const at = strchr(SUFFIXES, tolower((unsigned char)*end));
        if (at == NULL || end[1] != '\0') return "must be bytes, or a number with K, M, G or T";
        shift = 10 * (unsigned)(at - SUFFIXES + 1);
    }
    if (v > UINT64_MAX >> shift) return "is out of range";
    *(uint64_t *)o->target = (uint64_t)v << shift;
    return NULL;
}

/* An empty one is a shell's variable that isn't set: the default would be a silent surprise. */
static bool names_a_path(const ech_option *const o)
{
    return strcmp(o->arg, "DIR") == 0 || strcmp(o->arg, "FILE") == 0;
}

/* Used for flags, variables and the file alike, so that a value means the same in all three. */
const char *ech_option_set(const ech_option *const o, const char *const value)
{
    switch (o->kind) {
    case ECH_OPT_FLAG:
        *(bool *)o->target = true;
        return NULL;
    case ECH_OPT_NO_FLAG:
        *(bool *)o->target = false;
        return NULL;
    case ECH_OPT_STRING:
        if (value[0] == '\0' && names_a_path(o)) return "must not be empty";
        *(const char **)o->target = value;
        return NULL;
    case ECH_OPT_STRINGS:
        return add_string(o->target, value);
    case ECH_OPT_INT:
        return set_int(o, value);
    case ECH_OPT_SIZE:
        return set_size(o, value);
    case ECH_OPT_DOUBLE:
        return set_double(o, value);
    case ECH_OPT_CALL:
        return o->call(o->name, value);
    }
    return "is of no kind";
}

/*
 * name: as the user gave it, with dashes or as a variable. A long value doesn't hide the reason.
 * The range is only said where it is the reason.
 */
static int complain(const ech_option *const o, const char *const name, const char *const value,
                    const char *const why)
{
    if (o->max > o->min && strstr(why, "range") != NULL) {
        return ech_usage_error("%s %.80s %s (%.10g to %.10g)", name, value, why, o->min, o->max);
    }
    return ech_usage_error("%s %.80s %s", name, value, why);
}

/* "max-seq-len" → "ECHELON_MAX_SEQ_LEN" */
static void env_name(const ech_option *const o, char *const name, const size_t cap)
{
    size_t n = (size_t)snprintf(name, cap, "ECHELON_");
    for (const char *p = o->name; *p != '\0' && n < cap - 1; p++) {
        name[n++] = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
    }
    name[n] = '\0';
}

/*
 * Values from the environment come first: a flag then overwrites them. Flags aren't read: nobody
 * agrees on how a variable says no. A bad value is an error even when a flag would overwrite it:
 * it waits for the next run otherwise.
 */
static int read_environment(const ech_command *const cmd)
{
    for (size_t i = 0; i < cmd->n_options; i++) {
        const ech_option *const o = &cmd->options[i];
        /* A repeated option has no single value that a flag could overwrite. */
        if (!takes_value(o) || o->kind == ECH_OPT_STRINGS) continue;
        char name[64];
        env_name(o, name, sizeof name);
        const char *const value = getenv(name);
        if (value == NULL || value[0] == '\0') continue; /* empty is how a variable is unset */
        const char *const why = ech_option_set(o, value);
        if (why != NULL) return complain(o, name, value, why);
    }
    return ECH_EXIT_OK;
}

/*
 * getopt's tables; index i of long_options is option i, the last is --help. Values from 256 on
 * are indices, below they are letters. The ':' in front makes getopt tell a missing value from
 * an unknown option. -h and --help are there for every command.
 */
static void fill_getopt(const ech_command *const cmd, struct option *const long_options,
                        char *const short_options)
{
    size_t s = 0;
    short_options[s++] = ':';
    for (size_t i = 0; i < cmd->n_options; i++) {
        const ech_option *const o = &cmd->options[i];
        long_options[i] = (struct option){
            .name = o->name,
            .has_arg = takes_value(o) ? required_argument : no_argument,
            .val = (int)(256 + i),
        };
        if (o->short_name != 0) {
            short_options[s++] = o->short_name;
            if (takes_value(o)) short_options[s++] = ':';
        }
    }
    long_options[cmd->n_options] =
        (struct option){ .name = "help", .has_arg = no_argument, .val = 'h' };
    short_options[s++] = 'h';
    short_options[s] = '\0';
}

static const ech_option *option_of(const ech_command *const cmd, const int val)
{
    if (val >= 256) return &cmd->options[val - 256];
    for (size_t i = 0; i < cmd->n_options; i++) {
        if (cmd->options[i].short_name == val) return &cmd->options[i];
    }
    return NULL;
}

/* What getopt refused: c is '?' or ':', arg the argument that it read last. */
static int complain_usage(const ech_command *const cmd, const int c, const char *arg)
{
    const char letter[] = { '-', (char)optopt, '\0' };
    const char *why = c == ':' ? "needs a value" : "is no option here";
    if (c == '?' && optopt >= 256) why = "takes no value";
    if (optopt > 0 && optopt < 256) arg = letter; /* it may stand in a group, as -qZ */
    return ech_usage_error("%.80s %s; 'echelon help %s' lists the options", arg, why, cmd->name);
}

/*
 * Precedence is order: file, environment, flags; each writes over the one before. A group hands
 * everything on to the command that it picks. getopt moves what is no option to the end, so
 * options may stand behind arguments.
 */
int ech_command_main(const ech_command *const cmd, const int argc, char **const argv)
{
    if (cmd->is_group) return cmd->run(argc - 1, argv + 1);
    struct option long_options[MAX_OPTIONS + 2] = { 0 };
    char short_options[2 * MAX_OPTIONS + 4];
    if (cmd->n_options > MAX_OPTIONS) return ech_usage_error("%s has too many options", cmd->name);
    fill_getopt(cmd, long_options, short_options);

    int rc = ech_config_read(cmd, argc, argv);
    if (rc == ECH_EXIT_OK) rc = read_environment(cmd);
    if (rc != ECH_EXIT_OK) return rc;

    opterr = 0;
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, short_options, long_options, NULL)) != -1;) {
        if (c == 'h') {
            ech_command_help(cmd);
            return ECH_EXIT_OK;
        }
        if (c == '?' || c == ':') return complain_usage(cmd, c, argv[optind - 1]);
        const ech_option *const o = option_of(cmd, c);
        const char *const why = ech_option_set(o, optarg);
        char name[64];
        (void)snprintf(name, sizeof name, "--%s", o->name);
        if (why != NULL) return complain(o, name, optarg, why);
    }
    return cmd->run(argc - optind, argv + optind);
}

/* From the table that parses, to standard output. */
void ech_command_help(const ech_command *const cmd)
{
    (void)printf("usage: echelon %s [OPTIONS]%s%s\n\n%s\n\n", cmd->name,
                 cmd->args[0] != '\0' ? " " : "", cmd->args, cmd->summary);
    if (cmd->n_options > 0) (void)printf("options:\n");
    for (size_t i = 0; i < cmd->n_options; i++) {
        const ech_option *const o = &cmd->options[i];
        char left[64];
        (void)snprintf(left, sizeof left, "%s%c%s--%s%s%s", o->short_name != 0 ? "-" : "  ",
                       o->short_name != 0 ? o->short_name : ' ', o->short_name != 0 ? ", " : " ",
                       o->name, takes_value(o) ? " " : "", takes_value(o) ? o->arg : "");
        (void)printf("  %-32s %s\n", left, o->help);
    }
    (void)printf("\nexample:\n");
    for (const char *p = cmd->example; *p != '\0';) {
        const size_t n = strcspn(p, "\n");
        (void)printf("  %.*s\n", (int)n, p);
        p += n + (p[n] == '\n');
    }
    if (cmd->n_options > 0) {
        (void)printf(
            "\nAn option with a value can also be given in the environment: --%s as ECHELON_… in "
            "upper case.\n",
            cmd->options[0].name);
    }
}

/* roff takes a leading '.' or "'" as a command, and '-' as a hyphen. */
static void put_roff(const char *s)
{
    if (*s == '.' || *s == '\'') (void)fputs("\\&", stdout);
    for (; *s != '\0'; s++) {
        if (*s == '-' || *s == '\\') (void)putchar('\\');
        (void)putchar(*s);
    }
}

/* From the same table as the help. */
void ech_command_man(const ech_command *const cmd)
{
    (void)printf(".TH ECHELON\\-");
    for (const char *p = cmd->name; *p != '\0'; p++) {
        (void)putchar(toupper((unsigned char)*p));
    }
    (void)printf(" 1\n.SH NAME\nechelon\\-%s \\- ", cmd->name);
    put_roff(cmd->summary);
    (void)printf("\n.SH SYNOPSIS\n.B echelon %s\n[OPTIONS] ", cmd->name);
    put_roff(cmd->args);
    (void)printf("\n.SH OPTIONS\n");
    for (size_t i = 0; i < cmd->n_options; i++) {
        const ech_option *const o = &cmd->options[i];
        (void)printf(".TP\n.B \\-\\-");
        put_roff(o->name);
        if (takes_value(o)) (void)printf(" \\fI%s\\fR", o->arg);
        (void)putchar('\n');
        put_roff(o->help);
        (void)putchar('\n');
    }
    (void)printf(".SH EXAMPLE\n.nf\n");
    put_roff(cmd->example);
    (void)printf("\n.fi\n");
}
