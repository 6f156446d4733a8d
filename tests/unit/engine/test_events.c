/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#include "src/engine/events.h"

static void what_goes_in_comes_out(void **state)
{
    (void)state;
    ech_event_queue q = { 0 };
    const ech_token_prob top[2] = { { 5, -0.25f }, { 9, -2.5f } };
    ech_event in = { .kind = ECH_EVENT_TOKEN,
                     .choice = 3,
                     .id = 5,
                     .has_logprob = true,
                     .logprob = -0.25f,
                     .top = top,
                     .n_top = 2 };
    assert_int_equal(ech_event_queue_push(&q, &in), ECH_OK);
    const float vector[3] = { 0.5f, -1, 2 };
    in = (ech_event){ .kind = ECH_EVENT_EMBEDDING, .embedding = vector, .n_embedding = 3 };
    assert_int_equal(ech_event_queue_push(&q, &in), ECH_OK);
    in = (ech_event){ .kind = ECH_EVENT_TEXT, .text = "häll", .text_len = 5 };
    assert_int_equal(ech_event_queue_push(&q, &in), ECH_OK);
    in = (ech_event){ .kind = ECH_EVENT_FINISH, .finish = ECH_FINISH_ERROR };
    in.usage.prompt_tokens = 77;
    in.error.code = ECH_ENUMERIC;
    strcpy(in.error.text, "not a number");
    assert_int_equal(ech_event_queue_push(&q, &in), ECH_OK);
    ech_event ev;
    assert_true(ech_event_queue_pop(&q, &ev));
    assert_int_equal(ev.kind, ECH_EVENT_TOKEN);
    assert_int_equal(ev.choice, 3);
    assert_int_equal(ev.n_top, 2);
    assert_memory_equal(ev.top, top, sizeof top);
    assert_true(ech_event_queue_pop(&q, &ev));
    assert_int_equal(ev.n_embedding, 3);
    assert_memory_equal(ev.embedding, vector, sizeof vector);
    assert_true(ech_event_queue_pop(&q, &ev));
    assert_int_equal(ev.text_len, 5);
    assert_memory_equal(ev.text, "häll", 5);
    assert_int_equal(ev.error.code, ECH_OK);
    assert_true(ech_event_queue_pop(&q, &ev));
    assert_int_equal(ev.usage.prompt_tokens, 77);
    assert_int_equal(ev.error.code, ECH_ENUMERIC);
    assert_string_equal(ev.error.text, "not a number");
    assert_false(ech_event_queue_pop(&q, &ev));
    assert_int_equal(ech_event_queue_unread(&q), 0);
    ech_event_queue_fini(&q);
}

static void an_event_stays_while_others_are_added(void **state)
{
    (void)state;
    ech_event_queue q = { 0 };
    char text[64];
    size_t read = 0, written = 0;
    while (read < 3000) {
        for (int i = 0; i < 7 && written < 3000; i++, written++) {
            const int len = snprintf(text, sizeof text, "text number %zu", written);
            const ech_event in = { .kind = ECH_EVENT_TEXT, .text = text, .text_len = (size_t)len };
            assert_int_equal(ech_event_queue_push(&q, &in), ECH_OK);
        }
        ech_event ev;
        for (int i = 0; i < 5 && ech_event_queue_pop(&q, &ev); i++, read++) {
            const ech_event in = { .kind = ECH_EVENT_TOKEN, .id = 1 };
            if (read % 500 == 0) { /* the queue moves under the event that was read */
                ech_event_queue copy = { 0 };
                assert_int_equal(ech_event_queue_push(&copy, &in), ECH_OK);
                ech_event_queue_fini(&copy);
            }
            const int len = snprintf(text, sizeof text, "text number %zu", read);
            assert_int_equal(ev.text_len, len);
            assert_memory_equal(ev.text, text, (size_t)len);
        }
    }
    assert_true(q.back.cap + q.front.cap < 2000 * 150);
    ech_event_queue_fini(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_goes_in_comes_out),
        cmocka_unit_test(an_event_stays_while_others_are_added),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
