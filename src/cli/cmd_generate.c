/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `echelon generate`: prompts in, answers out. It opens an engine, submits one request that holds
 * all prompts, and prints what its events say; it has no loop over tokens of its own.
 *
 * The main thread does all of it. An interrupt sets a flag that is looked at every LOOK_MS: the
 * request is cancelled, what there is of the answers is printed, and the engine is closed as
 * always.
 *
 * Exit codes: 0 when every answer ended well; that of the last error when one failed, after all
 * others were printed; 1 after an interrupt. Answers go to standard output in the order of the
 * prompts, progress and errors to standard error. Text streams only with one answer on a
 * terminal: a pipe gets whole answers, whose lines can't be mixed.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/cli/commands.h"
#include "src/cli/generate_ask.h"
#include "src/cli/generate_print.h"
#include "src/cli/last_run.h"
#include "src/cli/load_options.h"
#include "src/cli/numbers.h"

/*
 * 100 ms: what a person takes for "at once". A quarter of a gigabyte is more text than any
 * context holds.
 */
enum { LOOK_MS = 100, MAX_DEVICES = 16 };
#define MAX_PROMPT_BYTES ((size_t)256 << 20)

/* ---- the command line ---- */

/* A prompt as it was given; the order on the command line is the order of the answers. */
typedef struct given_prompt {
    char *text; /* owned, or NULL: ids */
    size_t text_len;
    int32_t *ids; /* owned */
    size_t n_ids;
} given_prompt;

static given_prompt *given; // [n_given]
static size_t n_given;
static int device_ids[MAX_DEVICES];
static size_t n_devices;
static uint64_t seed, kv_memory;
static bool has_seed, ignore_eos, as_json, quiet, parse_special = true;
static const char *model_dir, *platform, *trace_path;
static int64_t max_seq_len, max_new_tokens = 256, top_k, logprobs = -1, prefill_chunk, threads;
static double temperature, top_p = 1, min_p;
static ech_strings stop;
static ech_ask_flags asked = { .reasoning_budget = -1 };

/* One at a time: a command line has few. */
static given_prompt *add_prompt(void)
{
    given_prompt *const grown = realloc(given, (n_given + 1) * sizeof *grown);
    if (grown == NULL) return NULL;
    given = grown;
    given[n_given] = (given_prompt){ 0 };
    return &given[n_given++];
}

/* A copy, so that all prompts are freed alike. */
static const char *take_prompt(const char *name, const char *value)
{
    (void)name;
    char *const copy = strdup(value);
    given_prompt *const p = copy != NULL ? add_prompt() : NULL;
    if (p == NULL) {
        free(copy);
        return "does not fit in memory";
    }
    p->text = copy;
    p->text_len = strlen(copy);
    return NULL;
}

/*
 * The buffer's memory becomes the prompt's. The static error holds the reason until it is
 * printed.
 */
static const char *take_prompt_file(const char *name, const char *value)
{
    static ech_error err;
    (void)name;
    ech_buf b = { 0 };
    if (ech_buf_read_file(&b, value, MAX_PROMPT_BYTES, &err) != ECH_OK) {
        ech_buf_fini(&b);
        return err.text;
    }
    given_prompt *const p = add_prompt();
    if (p == NULL) {
        ech_buf_fini(&b);
        return "does not fit in memory";
    }
    p->text = b.data;
    p->text_len = b.len;
    return NULL;
}

#define IDS_WRONG "must be ids, separated by commas"

static const char *take_prompt_ids(const char *name, const char *value)
{
    (void)name;
    int32_t *const ids = calloc(strlen(value) / 2 + 1, sizeof *ids);
    size_t n = 0;
    const char *const wrong = ids == NULL                     ? "does not fit in memory"
                              : ech_parse_ids(value, ids, &n) ? NULL
                                                              : IDS_WRONG;
    given_prompt *const p = wrong == NULL ? add_prompt() : NULL;
    if (p == NULL) {
        free(ids);
        return wrong != NULL ? wrong : "does not fit in memory";
    }
    p->ids = ids;
    p->n_ids = n;
    return NULL;
}

/* A text shorter than the list can't name more ids than it has places. */
static const char *take_devices(const char *name, const char *value)
{
    (void)name;
    int32_t ids[MAX_DEVICES];
    if (strlen(value) >= sizeof ids / sizeof ids[0]) return "names too many devices";
    size_t n = 0;
    if (!ech_parse_ids(value, ids, &n)) return IDS_WRONG;
    for (size_t i = 0; i < n && n_devices < MAX_DEVICES; i++)
        device_ids[n_devices++] = ids[i];
    return NULL;
}

/*
 * Unsigned 64 bits, which ECH_OPT_INT can't hold; a sign is refused, since strtoull would wrap
 * it.
 */
static const char *take_seed(const char *name, const char *value)
{
    (void)name;
    char *end;
    errno = 0;
    seed = strtoull(value, &end, 10);
    has_seed = true;
    return *value < '0' || *value > '9' || *end != '\0' || errno != 0
               ? "must be a whole number of at most 64 bits"
               : NULL;
}

static const char *take_log_level(const char *name, const char *value)
{
    static const char *const NAMES[] = { "error", "warn", "info", "debug" };
    (void)name;
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        if (strcmp(NAMES[i], value) != 0) continue;
        ech_log_set_level((ech_log_level)i);
        return NULL;
    }
    return "must be error, warn, info or debug";
}

static const ech_option OPTIONS[] = {
    { "model-dir", 'm', ECH_OPT_STRING, &model_dir, "DIR",
      "the model's folder; default: the model that comes with Echelon", 0, 0, NULL },
    { "prompt", 'p', ECH_OPT_CALL, NULL, "TEXT", "a prompt; may repeat: all run as one batch", 0, 0,
      take_prompt },
    { "prompt-file", 'f', ECH_OPT_CALL, NULL, "FILE", "a prompt, the whole file; may repeat", 0, 0,
      take_prompt_file },
    { "prompt-ids", 0, ECH_OPT_CALL, NULL, "IDS", "a prompt as token ids, 1,2,3; may repeat", 0, 0,
      take_prompt_ids },
    { "no-special", 0, ECH_OPT_NO_FLAG, &parse_special, NULL,
      "special tokens written in a prompt are ordinary text", 0, 0, NULL },
    { "max-new-tokens", 'n', ECH_OPT_INT, &max_new_tokens, "N",
      "most tokens of an answer; default 256", 1, 1 << 30, NULL },
    { "max-seq-len", 'c', ECH_OPT_INT, &max_seq_len, "N",
      "prompt and answer together, in tokens; default: the model's own limit", 1, 1 << 30, NULL },
    { "temperature", 't', ECH_OPT_DOUBLE, &temperature, "T",
      "0 takes the likeliest token (default), above it samples", 0, 100, NULL },
    { "top-k", 0, ECH_OPT_INT, &top_k, "K", "samples among the K likeliest; 0: all (default)", 0,
      1 << 30, NULL },
    { "top-p", 0, ECH_OPT_DOUBLE, &top_p, "P", "samples among the likeliest that hold P; default 1",
      0, 1, NULL },
    { "min-p", 0, ECH_OPT_DOUBLE, &min_p, "P",
      "leaves out what is less likely than P times the likeliest; default 0", 0, 1, NULL },
    { "seed", 's', ECH_OPT_CALL, NULL, "N", "the same seed gives the same text; default: random", 0,
      0, take_seed },
    { "logprobs", 0, ECH_OPT_INT, &logprobs, "N",
      "log-probabilities of each token and of the N likeliest, 0 to 20", 0, 20, NULL },
    { "stop", 0, ECH_OPT_STRINGS, &stop, "TEXT", "ends the answer before this text; may repeat", 0,
      0, NULL },
    { "ignore-eos", 0, ECH_OPT_FLAG, &ignore_eos, NULL, "goes on after an end-of-sequence token", 0,
      0, NULL },
    { "schema", 0, ECH_OPT_STRING, &asked.schema, "FILE",
      "the answer is JSON of this schema; a file, or the schema itself", 0, 0, NULL },
    { "json-object", 0, ECH_OPT_FLAG, &asked.json_object, NULL, "the answer is a JSON object", 0, 0,
      NULL },
    { "regex", 0, ECH_OPT_STRING, &asked.regex, "REGEX", "the answer matches it as a whole", 0, 0,
      NULL },
    { "choice", 0, ECH_OPT_STRINGS, &asked.choices, "TEXT",
      "the answer is this or another choice; may repeat", 0, 0, NULL },
    { "grammar", 0, ECH_OPT_STRING, &asked.grammar, "FILE", "the answer follows this GBNF grammar",
      0, 0, NULL },
    { "chat", 0, ECH_OPT_STRING, &asked.chat, "FILE",
      "answer a conversation: JSON, a list of messages or an object with it; - is standard input",
      0, 0, NULL },
    { "tools", 0, ECH_OPT_STRING, &asked.tools, "FILE", "with --chat: functions, a JSON list", 0, 0,
      NULL },
    { "tool-choice", 0, ECH_OPT_STRING, &asked.tool_choice, "CHOICE",
      "with --chat: none, auto, required, or a tool's name", 0, 0, NULL },
    { "enable-thinking", 0, ECH_OPT_FLAG, &asked.enable_thinking, NULL,
      "with --chat: the template lets the model reason", 0, 0, NULL },
    { "no-thinking", 0, ECH_OPT_FLAG, &asked.no_thinking, NULL,
      "with --chat: the template ends reasoning at once", 0, 0, NULL },
    { "reasoning-budget", 0, ECH_OPT_INT, &asked.reasoning_budget, "N",
      "with --chat: most tokens of reasoning", 0, 1 << 30, NULL },
    { "reasoning-effort", 0, ECH_OPT_STRING, &asked.reasoning_effort, "LEVEL",
      "with --chat: given to the template", 0, 0, NULL },
    { "chat-template", 0, ECH_OPT_STRING, &asked.template_path, "FILE",
      "with --chat: instead of the model's own template", 0, 0, NULL },
    { "chat-template-kwargs", 0, ECH_OPT_STRING, &asked.template_kwargs, "JSON",
      "with --chat: more variables for the template", 0, 0, NULL },
    { "reasoning-parser", 0, ECH_OPT_STRING, &asked.reasoning_parser, "NAME",
      "instead of what the template shows: think, mistral, harmony, none", 0, 0, NULL },
    { "tool-call-parser", 0, ECH_OPT_STRING, &asked.tool_call_parser, "NAME",
      "the same: hermes, qwen3_coder, llama3_json, mistral, deepseek, harmony, none", 0, 0, NULL },
    { "platform", 0, ECH_OPT_STRING, &platform, "NAME", "cpu (default) or sim", 0, 0, NULL },
    { "device", 0, ECH_OPT_CALL, NULL, "IDS", "devices to run on; default 0", 0, 0, take_devices },
    { "threads", 'j', ECH_OPT_INT, &threads, "N", "cores of a chip; default: all physical cores", 1,
      256, NULL },
    ECH_KV_TYPE_OPTION,
    { "kv-memory", 0, ECH_OPT_SIZE, &kv_memory, "BYTES", "memory for keys and values", 0, 0, NULL },
    ECH_COMPUTE_OPTION,
    ECH_LOAD_OPTIONS,
    { "prefill-chunk", 0, ECH_OPT_INT, &prefill_chunk, "N",
      "most prompt tokens in one step; default 256", 1, 512, NULL },
    { "json", 0, ECH_OPT_FLAG, &as_json, NULL, "prints one JSON object a line for each prompt", 0,
      0, NULL },
    { "trace", 0, ECH_OPT_STRING, &trace_path, "FILE", "writes a Chrome trace of every step", 0, 0,
      NULL },
    { "log-level", 0, ECH_OPT_CALL, NULL, "LEVEL", "error, warn (default), info or debug", 0, 0,
      take_log_level },
    { "quiet", 'q', ECH_OPT_FLAG, &quiet, NULL, "no progress on a terminal", 0, 0, NULL },
};

/* ---- interrupts ---- */

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
    (void)sig;
    interrupted = 1;
}

/* The second one ends the program at once; its children notice. */
static void catch_interrupts(void)
{
    struct sigaction sa = { .sa_handler = on_interrupt, .sa_flags = SA_RESETHAND };
    (void)sigemptyset(&sa.sa_mask);
    (void)sigaction(SIGINT, &sa, NULL);
    (void)sigaction(SIGTERM, &sa, NULL);
}

/* ---- progress ---- */

/* A log file must not fill with carriage returns. */
static bool shows_progress(void)
{
    return !quiet && isatty(STDERR_FILENO);
}

/*
 * Overwrites the line; an empty text clears it. On standard error, so that a pipe's reader never
 * sees it.
 */
static void show_progress(const char *what, uint64_t done, uint64_t total)
{
    if (!shows_progress()) return;
    if (what == NULL)
        (void)fputs("\r\033[K", stderr);
    else
        (void)fprintf(stderr, "\r\033[K%s %3.0f %%", what,
                      total > 0 ? 100.0 * (double)done / (double)total : 0.0);
    (void)fflush(stderr);
}

/* ---- running ---- */

typedef struct session {
    ech_engine *engine;
    ech_request *request;
    ech_ask ask;
    ech_printed *answers; // [n_answers]
    size_t n_answers;     // n_given, or 1 of a chat
    size_t n_printed;     // whole answers, in order
    bool streams;         // text goes out as it comes
    bool stream_began;
    ech_channel streamed; // what the last streamed text was
    bool cancelled;
    int64_t began_ns, load_ns;
    ech_status worst;
} session;

/*
 * Only when no prompt was given. An interrupt ends fread() early, which must not look like the
 * end of the text.
 */
static ech_status read_stdin(ech_error *err)
{
    ech_buf b = { 0 };
    char piece[1 << 16];
    size_t n;
    ech_status rc = ECH_OK;
    while (rc == ECH_OK && (n = fread(piece, 1, sizeof piece, stdin)) > 0) {
        rc = ech_buf_append(&b, piece, n);
        if (rc == ECH_OK && b.len > MAX_PROMPT_BYTES) rc = ECH_ELIMIT;
    }
    if (interrupted) rc = ECH_ECANCELLED;
    if (rc == ECH_OK && ferror(stdin) != 0) rc = ECH_EIO;
    given_prompt *const p = rc == ECH_OK ? add_prompt() : NULL;
    if (p == NULL) {
        ech_buf_fini(&b);
        return ech_fail(err, rc == ECH_OK ? ECH_ENOMEM : rc,
                        "reading the prompt from standard input: %s", ech_status_str(rc));
    }
    p->text = b.data;
    p->text_len = b.len;
    return ECH_OK;
}

/*
 * Waits in pieces, to see an interrupt and to show how far loading is. s->load_ns runs from the
 * beginning of the command.
 */
static ech_status open_engine(session *s, ech_error *err)
{
    ech_engine_options o;
    ech_engine_options_default(&o);
    o.model_dir = model_dir;
    o.platform = platform;
    o.device_ids = n_devices > 0 ? device_ids : NULL;
    o.n_devices = n_devices;
    o.threads = (uint32_t)threads;
    o.max_seq_len = (uint32_t)max_seq_len;
    o.kv_memory = kv_memory;
    ech_take_load_options(&o);
    o.prefill_chunk = (uint32_t)prefill_chunk;
    o.trace_path = trace_path;
    ECH_TRY(ech_engine_open(&s->engine, &o, err));
    ech_load_progress p;
    ech_status rc;
    while ((rc = ech_engine_wait_ready(s->engine, LOOK_MS, &p, err)) == ECH_ETIMEOUT) {
        if (interrupted) return ech_fail(err, ECH_ECANCELLED, "interrupted");
        show_progress("loading", p.done, p.total);
    }
    show_progress(NULL, 0, 0);
    s->load_ns = ech_now_ns() - s->began_ns;
    return rc;
}

/*
 * All prompts are one request, so that they run as a batch. The array is needed for the call
 * only.
 */
static ech_status submit(session *s, ech_error *err)
{
    ech_prompt *const prompts = calloc(n_given + 1, sizeof *prompts);
    if (prompts == NULL) return ech_fail(err, ECH_ENOMEM, "submitting: out of memory");
    for (size_t i = 0; i < n_given; i++)
        prompts[i] = (ech_prompt){ .ids = given[i].ids,
                                   .n_ids = given[i].n_ids,
                                   .text = given[i].text != NULL ? given[i].text : "",
                                   .text_len = given[i].text_len };
    ech_request_options o;
    ech_request_options_default(&o);
    o.prompts = prompts;
    o.n_prompts = n_given;
    o.parse_special = parse_special;
    o.sampling.temperature = (float)temperature;
    o.sampling.top_k = (int32_t)top_k;
    o.sampling.top_p = (float)top_p;
    o.sampling.min_p = (float)min_p;
    o.sampling.has_seed = has_seed;
    o.sampling.seed = seed;
    o.max_tokens = (uint32_t)max_new_tokens;
    o.stop = stop.items;
    o.n_stop = stop.count;
    o.ignore_eos = ignore_eos;
    o.logprobs = (int32_t)logprobs;
    ech_status rc = ech_ask_apply(&s->ask, &asked, s->engine, &o, err);
    if (rc == ECH_OK) rc = ech_engine_submit(s->engine, &o, &s->request, err);
    free(prompts);
    return rc;
}

/*
 * Reasoning and text as they come, each behind its name; calls are printed when they are whole.
 * Flushed piece by piece: what isn't seen at once isn't streamed.
 */
static void stream_text(session *s, const ech_event *ev)
{
    const bool is_text = ev->channel == ECH_CHANNEL_CONTENT;
    if (!s->streams || (!is_text && ev->channel != ECH_CHANNEL_REASONING)) return;
    if (!s->stream_began || s->streamed != ev->channel) {
        if (s->stream_began) (void)fputc('\n', stdout);
        (void)fputs(is_text ? "text: " : "reasoning: ", stdout);
    }
    s->stream_began = true;
    s->streamed = ev->channel;
    (void)fwrite(ev->text, 1, ev->text_len, stdout);
    (void)fflush(stdout);
}

/* An answer waits for those before it. Its error is reported right behind it. */
static void print_finished(session *s)
{
    for (; s->n_printed < s->n_answers && s->answers[s->n_printed].is_done; s->n_printed++) {
        const ech_printed *const p = &s->answers[s->n_printed];
        if (as_json)
            (void)ech_printed_write_json(p, stdout, logprobs >= 0, s->load_ns);
        else
            ech_printed_write_lines(p, stdout, s->stream_began);
        if (p->error.code == ECH_OK) continue;
        s->worst = p->error.code;
        (void)ech_report(&p->error);
    }
}

/*
 * Progress is shown for one prompt only: with several the lines would jump. The first token
 * clears it, before text is written.
 */
static ech_status take_event(session *s, const ech_event *ev, ech_error *err)
{
    if (ev->kind == ECH_EVENT_DONE) return ECH_OK;
    if (ech_printed_take(&s->answers[ev->choice], ev, ech_engine_tokenizer(s->engine)) != ECH_OK)
        return ech_fail(err, ECH_ENOMEM, "collecting the answers: out of memory");
    if (ev->kind == ECH_EVENT_PROGRESS && s->n_answers == 1)
        show_progress("prompt", ev->progress_done, ev->usage.prompt_tokens);
    if (ev->kind == ECH_EVENT_TOKEN && s->answers[ev->choice].text.len == 0)
        show_progress(NULL, 0, 0);
    if (ev->kind == ECH_EVENT_TEXT) stream_text(s, ev);
    if (ev->kind == ECH_EVENT_FINISH) {
        /* As OpenAI has it: a call that was asked for by name ends with stop. */
        if (s->ask.guide != NULL && ech_guide_tool_mode(s->ask.guide) == ECH_TOOL_MODE_NAMED)
            s->answers[ev->choice].n_calls = 0;
        print_finished(s);
    }
    return ECH_OK;
}

/* After a cancel events go on to come until DONE: what was drawn so far is printed. */
static ech_status read_events(session *s, ech_error *err)
{
    ech_event ev = { 0 };
    while (ev.kind != ECH_EVENT_DONE) {
        if (interrupted && !s->cancelled) {
            ech_request_cancel(s->request);
            s->cancelled = true;
        }
        const ech_status rc = ech_request_next(s->request, LOOK_MS, &ev, err);
        if (rc == ECH_ETIMEOUT) continue;
        ECH_TRY(rc);
        ECH_TRY(take_event(s, &ev, err));
    }
    return ECH_OK;
}

/*
 * What costs nothing is checked first: files and flags before the engine is opened. Each part
 * that is made stands in the session, for end_session().
 */
static ech_status generate(session *s, ech_error *err)
{
    s->began_ns = ech_now_ns();
    if (asked.chat != NULL && n_given > 0)
        return ech_fail(err, ECH_EINVAL, "--chat and --prompt don't go together");
    ECH_TRY(ech_ask_read(&s->ask, &asked, err));
    if (n_given == 0 && asked.chat == NULL) ECH_TRY(read_stdin(err));
    s->n_answers = asked.chat != NULL ? 1 : n_given;
    s->answers = calloc(s->n_answers, sizeof *s->answers);
    if (s->answers == NULL) return ech_fail(err, ECH_ENOMEM, "generating: out of memory");
    s->streams = s->n_answers == 1 && !as_json && isatty(STDOUT_FILENO);
    ECH_TRY(open_engine(s, err));
    ECH_TRY(submit(s, err));
    ECH_TRY(read_events(s, err));
    return s->cancelled ? ech_fail(err, ECH_ECANCELLED, "interrupted") : ECH_OK;
}

/* The request before its engine, and what it points to (constraint, prompt) after both. */
static ech_status end_session(session *s)
{
    ech_request_close(&s->request);
    if (s->engine != NULL) ech_last_run_keep("generate", s->engine);
    const ech_status closed = ech_engine_close(&s->engine);
    ech_ask_fini(&s->ask);
    for (size_t i = 0; s->answers != NULL && i < s->n_answers; i++)
        ech_printed_fini(&s->answers[i]);
    for (size_t i = 0; i < n_given; i++) {
        free(given[i].text);
        free(given[i].ids);
    }
    free(s->answers);
    free(given);
    free(stop.items);
    free(asked.choices.items);
    return closed;
}

static int run(int argc, char **argv)
{
    if (argc > 0)
        return ech_usage_error("generate takes no '%s'; a prompt is given with --prompt", argv[0]);
    session s = { 0 };
    ech_error err = { .code = ECH_OK };
    catch_interrupts();
    const ech_status rc = generate(&s, &err);
    show_progress(NULL, 0, 0);
    const int code = rc == ECH_OK ? ech_status_exit(s.worst) : ech_report(&err);
    const ech_status closed = end_session(&s);
    return code != ECH_EXIT_OK ? code : ech_status_exit(closed);
}

const ech_command ech_cmd_generate = {
    "generate",
    "",
    "continue prompts",
    "echelon generate --prompt 'Once upon a time' --max-new-tokens 40\n"
    "echelon generate --model-dir DIR --prompt 'Huawei is' --platform cpu --max-seq-len 512 "
    "--max-new-tokens 5\n"
    "echelon generate --prompt-file a.txt --prompt-file b.txt --temperature 0.8 --seed 7 --json\n"
    "echelon generate --prompt 'A cat as JSON:' --schema cat.schema.json\n"
    "echelon generate --chat messages.json --tools tools.json --tool-choice required",
    OPTIONS,
    sizeof OPTIONS / sizeof OPTIONS[0],
    run,
    false,
};
