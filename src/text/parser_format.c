/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of the formats without parsing: names, how a template shows which one its model
 * was trained on, where a prompt leaves off, and the pieces of a call. Tables and pure functions.
 *
 * Thread: any, nothing here changes. The tables are what models were trained on: a marker that is
 * spelled otherwise would never come. What is not recognised is NONE, which makes everything
 * content.
 */
#include "echelon/parser.h"
#include "src/base/buf.h"
#include "src/base/error.h"

typedef struct alias {
    const char *name;
    int format;
} alias;

/* The first of each format is its name here; the others are what servers call it elsewhere. */
static const alias REASONING[] = {
    { "none", ECH_REASONING_NONE },       { "think", ECH_REASONING_THINK },
    { "mistral", ECH_REASONING_MISTRAL }, { "harmony", ECH_REASONING_HARMONY },
    { "qwen3", ECH_REASONING_THINK },     { "deepseek_r1", ECH_REASONING_THINK },
    { "deepseek", ECH_REASONING_THINK },  { "openai_gptoss", ECH_REASONING_HARMONY },
    { "gpt-oss", ECH_REASONING_HARMONY },
};

static const alias TOOLS[] = {
    { "none", ECH_TOOLS_NONE },
    { "hermes", ECH_TOOLS_HERMES },
    { "qwen3_coder", ECH_TOOLS_QWEN3_CODER },
    { "llama3_json", ECH_TOOLS_LLAMA3_JSON },
    { "mistral", ECH_TOOLS_MISTRAL },
    { "deepseek", ECH_TOOLS_DEEPSEEK },
    { "harmony", ECH_TOOLS_HARMONY },
    { "qwen", ECH_TOOLS_HERMES },
    { "qwen3", ECH_TOOLS_HERMES },
    { "qwen25", ECH_TOOLS_HERMES },
    { "qwen3_xml", ECH_TOOLS_QWEN3_CODER },
    { "llama3", ECH_TOOLS_LLAMA3_JSON },
    { "deepseek_v3", ECH_TOOLS_DEEPSEEK },
    { "deepseek_v31", ECH_TOOLS_DEEPSEEK },
    { "openai", ECH_TOOLS_HARMONY },
    { "gpt-oss", ECH_TOOLS_HARMONY },
};

static const char *name_of(const alias *const table, const size_t n, const int format)
{
    for (size_t i = 0; i < n; i++) {
        if (table[i].format == format) return table[i].name;
    }
    return "";
}

static const alias *find(const alias *const table, const size_t n, const char *const name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(table[i].name, name) == 0) return &table[i];
    }
    return NULL;
}

#define LENGTH(table) (sizeof(table) / sizeof *(table))

const char *ech_reasoning_format_name(const ech_reasoning_format format)
{
    return name_of(REASONING, LENGTH(REASONING), (int)format);
}

const char *ech_tools_format_name(const ech_tools_format format)
{
    return name_of(TOOLS, LENGTH(TOOLS), (int)format);
}

bool ech_reasoning_format_find(const char *const name, ech_reasoning_format *const ret_format)
{
    const alias *const a = find(REASONING, LENGTH(REASONING), name);
    if (a != NULL) *ret_format = (ech_reasoning_format)a->format;
    return a != NULL;
}

bool ech_tools_format_find(const char *const name, ech_tools_format *const ret_format)
{
    const alias *const a = find(TOOLS, LENGTH(TOOLS), name);
    if (a != NULL) *ret_format = (ech_tools_format)a->format;
    return a != NULL;
}

/* ---- templates ----------------------------------------------------------------------------- */

static bool has(const ech_str text, const char *const what)
{
    return memmem(text.ptr, text.len, what, strlen(what)) != NULL;
}

/*
 * From the most telling marker to the least; formats that only look alike come out as NONE. A
 * template that shows markers of two formats belongs to the more telling one; the order is that.
 */
static ech_tools_format pick_tools(const ech_str t)
{
    if (has(t, "<|channel|>") && has(t, "<|message|>")) return ECH_TOOLS_HARMONY;
    if (has(t, "<tool_call>")) {
        if (has(t, "<arg_key>")) return ECH_TOOLS_NONE;     /* GLM's own */
        if (has(t, "<tool_calls>[")) return ECH_TOOLS_NONE; /* Apriel's: one list */
        return has(t, "<function=") ? ECH_TOOLS_QWEN3_CODER : ECH_TOOLS_HERMES;
    }
    if (has(t, "[TOOL_CALLS]")) return ECH_TOOLS_MISTRAL;
    if (has(t, "<｜tool▁calls▁begin｜>")) return ECH_TOOLS_DEEPSEEK;
    const bool says_parameters =
        has(t, "\"parameters\": dictionary") || has(t, "\"parameters\": {");
    if (says_parameters && (has(t, "<|eot_id|>") || has(t, "<|python_tag|>"))) {
        return ECH_TOOLS_LLAMA3_JSON;
    }
    return ECH_TOOLS_NONE;
}

/* text is a chat template's source. */
void ech_parser_pick(const char *const text, const size_t len,
                     ech_reasoning_format *const ret_reasoning, ech_tools_format *const ret_tools)
{
    const ech_str t = { text, len };
    *ret_tools = pick_tools(t);
    if (*ret_tools == ECH_TOOLS_HARMONY) {
        *ret_reasoning = ECH_REASONING_HARMONY;
    } else if (has(t, "[THINK]")) {
        *ret_reasoning = ECH_REASONING_MISTRAL;
    } else {
        *ret_reasoning = has(t, "</think>") ? ECH_REASONING_THINK : ECH_REASONING_NONE;
    }
}

const char *ech_reasoning_begin(const ech_reasoning_format format)
{
    static const char *const texts[ECH_REASONING_COUNT] = {
        [ECH_REASONING_NONE] = "",
        [ECH_REASONING_THINK] = "<think>",
        [ECH_REASONING_MISTRAL] = "[THINK]",
        [ECH_REASONING_HARMONY] = "<|channel|>analysis<|message|>",
    };
    return format < ECH_REASONING_COUNT ? texts[format] : "";
}

const char *ech_reasoning_end(const ech_reasoning_format format)
{
    static const char *const texts[ECH_REASONING_COUNT] = {
        [ECH_REASONING_NONE] = "",
        [ECH_REASONING_THINK] = "</think>",
        [ECH_REASONING_MISTRAL] = "[/THINK]",
        [ECH_REASONING_HARMONY] = "<|end|>",
    };
    return format < ECH_REASONING_COUNT ? texts[format] : "";
}

static bool ends_with(const ech_str text, const char *const what)
{
    const size_t n = strlen(what);
    return n != 0 && text.len >= n && memcmp(text.ptr + text.len - n, what, n) == 0;
}

/* White space at the prompt's end is left out: templates write a line break behind the marker. */
ech_parser_start ech_parser_start_of(const ech_reasoning_format format, const char *const prompt,
                                     const size_t len)
{
    ech_str t = { prompt, len };
    while (t.len != 0 && strchr(" \t\r\n", t.ptr[t.len - 1]) != NULL) {
        t.len--;
    }
    if (ends_with(t, ech_reasoning_begin(format))) return ECH_START_OPEN;
    const bool closed = format == ECH_REASONING_HARMONY
                            ? ends_with(t, "<|channel|>final<|message|>")
                            : ends_with(t, ech_reasoning_end(format));
    return closed ? ECH_START_CLOSED : ECH_START_NONE;
}

/* ---- the pieces of a call ------------------------------------------------------------------ */

/*
 * In each row: what stands before the first name, before a later one, between name and arguments,
 * behind arguments, behind the last call; and whether arguments are JSON.
 */
ech_status ech_tools_call_syntax(const ech_tools_format format, ech_call_syntax *const ret_syntax)
{
    static const ech_call_syntax syntax[ECH_TOOLS_COUNT] = {
        [ECH_TOOLS_HERMES] = { "<tool_call>\n{\"name\": \"", "\n<tool_call>\n{\"name\": \"",
                               "\", \"arguments\": ", "}\n</tool_call>", "", true },
        [ECH_TOOLS_QWEN3_CODER] = { "<tool_call>\n<function=", "\n<tool_call>\n<function=", ">\n",
                                    "</function>\n</tool_call>", "", false },
        [ECH_TOOLS_LLAMA3_JSON] = { "{\"name\": \"", "; {\"name\": \"", "\", \"parameters\": ", "}",
                                    "", true },
        [ECH_TOOLS_MISTRAL] = { "[TOOL_CALLS]", "[TOOL_CALLS]", "[ARGS]", "", "", true },
        [ECH_TOOLS_DEEPSEEK] = { "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
                                 "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
                                 "<｜tool▁calls▁end｜>", true },
        [ECH_TOOLS_HARMONY] = { "<|channel|>commentary to=functions.",
                                "<|start|>assistant<|channel|>commentary to=functions.",
                                " <|constrain|>json<|message|>", "<|call|>", "", true },
    };
    if (format <= ECH_TOOLS_NONE || format >= ECH_TOOLS_COUNT) return ECH_EUNSUPPORTED;
    *ret_syntax = syntax[format];
    return ECH_OK;
}
