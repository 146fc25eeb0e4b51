/* SPDX-License-Identifier: Apache-2.0 */
/* Random words: follows math.cl, whose head says how. */

#if defined(KILN_NEED_PHILOX) || defined(KILN_NEED_PHILOX_SECOND)
/* Philox4x32-10 (J. Salmon and others, SC 2011) of the counter (counter, 0, 0, 0): words 0 and 1.
 * Where a kernel wants both, the compiler sees that the rounds are the same. */
static inline U FN(philox_rounds)(U counter, U key0, U key1, int word)
{
    U c0 = counter, c1 = (U)(0), c2 = (U)(0), c3 = (U)(0);
    for (int round = 0; round < 10; round++) {
        U high0 = mul_hi(c0, (U)(0xD2511F53u)), low0 = c0 * 0xD2511F53u;
        U high1 = mul_hi(c2, (U)(0xCD9E8D57u)), low1 = c2 * 0xCD9E8D57u;
        c0 = high1 ^ c1 ^ key0;
        c1 = low1;
        c2 = high0 ^ c3 ^ key1;
        c3 = low0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return word ? c1 : c0;
}

static inline I FN(philox)(I counter, I key0, I key1)
{
    return AS_I(FN(philox_rounds)(AS_U(counter), AS_U(key0), AS_U(key1), 0));
}

static inline I FN(philox_second)(I counter, I key0, I key1)
{
    return AS_I(FN(philox_rounds)(AS_U(counter), AS_U(key0), AS_U(key1), 1));
}
#endif
