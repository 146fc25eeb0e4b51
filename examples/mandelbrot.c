/* SPDX-License-Identifier: Apache-2.0 */
/* The Mandelbrot set, drawn with letters: one kernel with the loop inside, in which each point ends
 * by itself. Usage: mandelbrot [steps] */
#include <stdio.h>
#include <stdlib.h>

#include <kiln/kiln.h>

enum { WIDTH = 76, HEIGHT = 28 };

static kiln_tensor number(kiln_batch *b, double value)
{
    return kiln_constant(b, KILN_F32, value);
}

/* How many steps of z = z * z + c each point takes until |z| is beyond 2. */
static kiln_tensor record(kiln_batch *b, size_t steps)
{
    const size_t dims[] = {HEIGHT, WIDTH};
    kiln_tensor x = kiln_cast(b, kiln_iota(b, 2, dims, 1), KILN_F32);
    kiln_tensor y = kiln_cast(b, kiln_iota(b, 2, dims, 0), KILN_F32);
    x = kiln_sub(b, kiln_mul(b, x, number(b, 3.0 / WIDTH)), number(b, 2.2));
    y = kiln_sub(b, kiln_mul(b, y, number(b, 2.4 / HEIGHT)), number(b, 1.2));
    const kiln_tensor zeros = kiln_fill(b, KILN_F32, 2, dims, 0);
    enum { RE, IM, COUNT, STATES };
    kiln_tensor s[STATES] = {kiln_loop_state(b, zeros), kiln_loop_state(b, zeros),
                             kiln_loop_state(b, kiln_fill(b, KILN_I32, 2, dims, 0))};
    const kiln_tensor re2 = kiln_square(b, s[RE]), im2 = kiln_square(b, s[IM]);
    const kiln_tensor product = kiln_mul(b, s[RE], s[IM]);
    kiln_tensor next[STATES], last[STATES];
    next[RE] = kiln_add(b, kiln_sub(b, re2, im2), x);
    next[IM] = kiln_add(b, kiln_add(b, product, product), y);
    next[COUNT] = kiln_add(b, s[COUNT], kiln_constant(b, KILN_I32, 1));
    kiln_loop_options loop = KILN_LOOP_INIT;
    loop.steps = steps;
    loop.state_count = STATES;
    loop.states = s;
    loop.next = next;
    loop.until = kiln_greater(b, kiln_add(b, re2, im2), number(b, 4));
    kiln_loop(b, &loop, last, NULL);
    return last[COUNT];
}

static void draw(const int32_t *counts, size_t steps)
{
    static const char shades[] = " .:-=+*%";
    for (int row = 0; row < HEIGHT; row++) {
        for (int column = 0; column < WIDTH; column++) {
            const size_t count = (size_t)counts[row * WIDTH + column];
            putchar(count == steps ? '@' : shades[count % (sizeof shades - 1)]);
        }
        putchar('\n');
    }
}

int main(int argc, char **argv)
{
    static int32_t counts[HEIGHT * WIDTH];
    const size_t steps = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;
    kiln_context *context;
    if (kiln_context_create(NULL, &context))
        return fprintf(stderr, "%s\n", kiln_last_error()), 1;
    kiln_batch *batch = kiln_batch_create(context);
    const kiln_status status = batch ? kiln_read(batch, record(batch, steps), counts, sizeof counts)
                                     : KILN_OUT_OF_HOST_MEMORY;
    if (status || kiln_batch_execute(batch))
        return fprintf(stderr, "%s\n", kiln_batch_error(batch)), 1;
    draw(counts, steps);
    kiln_batch_release(batch);
    kiln_context_release(context);
    return 0;
}
