/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `echelon template render` and `echelon template check`: what a chat template makes of a
 * conversation, and whether it compiles. For whoever writes a template or wonders about a prompt.
 *
 * No model is needed: a file and JSON. Unlike in the server nothing is tokenised, and special
 * tokens of user text aren't made harmless: it shows what the template writes. Exit codes: 1 for
 * a template or arguments that don't work, 2 for wrong usage. Main thread.
 */
#include <stdio.h>
#include <string.h>

#include "echelon/template.h"
#include "src/base/buf.h"
#include "src/base/error.h"
#include "src/cli/commands.h"

#define ARGS_MAX ((size_t)64 << 20)

static const char *args_path;
static const char *now;

/* What a server passes too, and a file of arguments may leave out. A later value of a key counts.
 */
static const char DEFAULTS[] =
    "{\"tools\": null, \"documents\": null, \"add_generation_prompt\": true, "
    "\"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"pad_token\": \"<pad>\", "
    "\"unk_token\": \"<unk>\"";

/* The file's name goes before the error: check takes several. */
static ech_status compile_file(const char *const path, ech_template **const ret_t,
                               ech_error *const err)
{
    ech_buf source = { 0 };
    ech_status rc = ech_buf_read_file(&source, path, ECH_TEMPLATE_SOURCE_MAX, err);
    if (rc == ECH_OK) {
        rc = ech_template_compile(source.data != NULL ? source.data : "", source.len, ret_t, err);
        if (rc != ECH_OK) (void)ech_error_prefix(err, rc, "%s", path);
    }
    ech_buf_fini(&source);
    return rc;
}

/*
 * The arguments with the defaults put before them: {"tools": null, … , the file's own members.
 * As text, not by parsing and writing: numbers and the order of members reach the template as
 * they stand. What is no object is left for the renderer to refuse.
 */
static ech_status read_args(const char *const path, ech_buf *const ret, ech_error *const err)
{
    ech_buf file = { 0 };
    ech_status rc = ech_buf_read_file(&file, path, ARGS_MAX, err);
    if (rc == ECH_OK) {
        const size_t blanks = file.data == NULL ? 0 : strspn(file.data, " \t\r\n");
        const char *const body = file.data == NULL ? "" : file.data + blanks;
        const bool is_object = body[0] == '{';
        const bool is_empty = is_object && body[1 + strspn(body + 1, " \t\r\n")] == '}';
        rc = ech_buf_puts(ret, is_object ? DEFAULTS : "");
        if (rc == ECH_OK && is_object && !is_empty) rc = ech_buf_puts(ret, ", ");
        if (rc == ECH_OK) rc = ech_buf_append(ret, body + is_object, file.len - blanks - is_object);
        if (rc != ECH_OK) (void)ech_fail(err, rc, "reading %s: out of memory", path);
    }
    ech_buf_fini(&file);
    return rc;
}

/* The text is the caller's to release; after a failure there is none. */
static ech_status render_file(const char *const path, ech_rendered *const ret, ech_error *const err)
{
    ech_template *t = NULL;
    ech_buf args = { 0 };
    ech_template_options opts;
    ech_template_options_default(&opts);
    opts.now = now;
    ech_status rc = compile_file(path, &t, err);
    if (rc == ECH_OK) rc = read_args(args_path, &args, err);
    if (rc == ECH_OK) rc = ech_template_render(t, args.data, args.len, &opts, ret, err);
    ech_buf_fini(&args);
    ech_template_destroy(&t);
    return rc;
}

/*
 * Every failure here is the template's or the arguments': exit code 1, whatever the status. The
 * text of a raise_exception is the template's own, the place is not in it.
 */
static int report(const ech_error *const err)
{
    (void)fprintf(stderr, "echelon: %s", err->text);
    if (err->code == ECH_EINVAL && err->line > 0)
        (void)fprintf(stderr, " (template, line %lld column %lld)", (long long)err->line,
                      (long long)err->column);
    (void)fputc('\n', stderr);
    return ECH_EXIT_FAILED;
}

/* Exactly the text, without a line end of ours: a prompt ends where it ends. */
static int run_render(const int argc, char **const argv)
{
    if (argc != 1) return ech_usage_error("template render takes one file");
    if (args_path == NULL) return ech_usage_error("template render needs --args FILE");
    ech_rendered r = { 0 };
    ech_error err = { 0 };
    if (render_file(argv[0], &r, &err) != ECH_OK) return report(&err);
    (void)fwrite(r.text, 1, r.len, stdout);
    ech_rendered_release(&r);
    return ECH_EXIT_OK;
}

/* All files are looked at; one that fails decides the exit code. */
static int run_check(const int argc, char **const argv)
{
    int exit_code = ECH_EXIT_OK;
    if (argc < 1) return ech_usage_error("template check takes one file or more");
    for (int i = 0; i < argc; i++) {
        ech_template *t = NULL;
        ech_error err = { 0 };
        if (compile_file(argv[i], &t, &err) != ECH_OK)
            exit_code = report(&err);
        else
            (void)printf("%s: ok\n", argv[i]);
        ech_template_destroy(&t);
    }
    return exit_code;
}

static const ech_option RENDER_OPTIONS[] = {
    { "args", 0, ECH_OPT_STRING, &args_path, "FILE",
      "the conversation: JSON with messages, tools, documents, …" },
    { "now", 0, ECH_OPT_STRING, &now, "TIME",
      "what strftime_now sees, like 2026-01-02T03:04:05; default: the clock" },
};

static const ech_command RENDER = {
    "template render",
    "FILE",
    "print the text that a chat template makes of a conversation",
    "echelon template render chat_template.jinja --args conversation.json",
    RENDER_OPTIONS,
    sizeof RENDER_OPTIONS / sizeof RENDER_OPTIONS[0],
    run_render,
};

static const ech_command CHECK = {
    "template check",
    "FILE...",
    "say whether chat templates compile",
    "echelon template check chat_template.jinja",
    NULL,
    0,
    run_check,
};

/* A group: each word has its own options, so they are parsed by the one that is picked. */
static int run(const int argc, char **const argv)
{
    if (argc > 0 && strcmp(argv[0], "render") == 0) return ech_command_main(&RENDER, argc, argv);
    if (argc > 0 && strcmp(argv[0], "check") == 0) return ech_command_main(&CHECK, argc, argv);
    if (argc > 0 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0)) {
        (void)printf("usage: echelon template render|check FILE\n\n");
        ech_command_help(&RENDER);
        ech_command_help(&CHECK);
        return ECH_EXIT_OK;
    }
    return ech_usage_error("template takes render or check");
}

const ech_command ech_cmd_template = {
    "template",
    "render|check FILE",
    "render or check a chat template",
    "echelon template check chat_template.jinja",
    NULL,
    0,
    run,
    .is_group = true,
};
