/* The passes of EM over full rankings in hand-written C: the yardstick for the compiled kernels.
 *
 * Four components (or four beaten items) make one vector. Worths and sums lie by item with components side by side,
 * padded to whole vectors by components of share 0. What makes it fast:
 *
 * - one division serves four choices: 1/a = b / (a b), and so on up a tree of products, within the range of float64;
 * - several rows are worked on in turn, step by step, so that the processor need not wait for the results of one;
 * - running sums go forward by four places at a time, so that additions do not wait for each other;
 * - a row's probability is kept as mantissa and power of two: one logarithm a row, and no exponential;
 * - expected wins are multiplied by worths once at the end, not at every place;
 * - rates of short rows are added for all components at once; those of long rows by sweeping over all beaten items,
 *   for four rows of one component at a time, so that a line of rates is loaded and stored once for four rows.
 *
 * Worths must be so scaled that products of STRIDE sums stay within float64.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef double vec __attribute__((vector_size(32)));
typedef int64_t ints __attribute__((vector_size(32)));

#define INLINE static inline __attribute__((always_inline))
#define STRIDE 16
#define QUEUE 4
#define BATCH 4
#define NEGLIGIBLE 1e-15

/* Rows of up to this many items have their rates scattered; longer ones are swept. */
#define LONGEST_SCATTERED 40

typedef struct {
    int64_t n_items;
    int64_t n_vectors;   /* of four components */
    const vec *worths;   /* [item][vector] */
    const vec *shares;   /* [vector] */
    vec *sums;           /* [item][offers, wins][vector] */
    vec *total_shares;   /* [vector] */
    vec *scattered;      /* [winner][beaten][vector], or null */
    double *swept;       /* [component][winner][beaten, padded], or null */
    vec *inverse;        /* [row of a batch][vector][place] */
    double *queued_places; /* [component][QUEUE][beaten, padded] */
    double *queued_rates;  /* [component][QUEUE][winner] */
    int64_t *n_queued;     /* [component] */
} Pass;

INLINE vec splat(double x) { return (vec){x, x, x, x}; }

/* The power of two of positive numbers is moved from them into `exponent`. */
INLINE vec take_exponent(vec x, ints *exponent) {
    ints bits = (ints)x;
    *exponent += (bits >> 52) - 1023;
    return (vec)((bits & 0xFFFFFFFFFFFFFLL) | 0x3FF0000000000000LL);
}

/* 2 ** exponent for exponents of at most 0; below the range of float64 it is 0. */
INLINE vec power_of_two(ints exponent) {
    ints biased = exponent + 1023;
    biased &= biased > 0;
    return (vec)(biased << 52);
}

/* Inverse sums of all choices of one row for four components; gives their probability without its exponent. */
INLINE vec evaluate(const int32_t *row, int64_t n_items, const vec *worths, int64_t n_vectors, vec *inverse,
                    ints *exponent) {
    vec total = worths[row[n_items - 1] * n_vectors], product = splat(1.0);
    int64_t place = n_items - 2;
    while (place >= 0) {
        int64_t stop = place - STRIDE > -1 ? place - STRIDE : -1;
        for (; place - 3 > stop; place -= 4) {
            vec w0 = worths[row[place] * n_vectors], w1 = worths[row[place - 1] * n_vectors];
            vec w2 = worths[row[place - 2] * n_vectors], w3 = worths[row[place - 3] * n_vectors];
            vec s0 = total + w0, s1 = total + (w0 + w1), s2 = s1 + w2, s3 = s1 + (w2 + w3);
            vec s01 = s0 * s1, s23 = s2 * s3, group = splat(1.0) / (s01 * s23);
            vec i01 = group * s23, i23 = group * s01;
            inverse[place] = i01 * s1;
            inverse[place - 1] = i01 * s0;
            inverse[place - 2] = i23 * s3;
            inverse[place - 3] = i23 * s2;
            product *= (w0 * w1) * (w2 * w3) * group;
            total = s3;
        }
        for (; place > stop; place--) {
            vec worth = worths[row[place] * n_vectors];
            total += worth;
            inverse[place] = splat(1.0) / total;
            product *= worth * inverse[place];
        }
        product = take_exponent(product, exponent);
    }
    return product;
}

/* Weighted memberships of a row from its joint probabilities; gives the row's log-likelihood. */
INLINE double posterior(vec *joint, const ints *exponent, int64_t n_vectors, const vec *shares) {
    int64_t highest = INT64_MIN;
    for (int64_t v = 0; v < n_vectors; v++)
        for (int lane = 0; lane < 4; lane++)
            if (shares[v][lane] > 0 && exponent[v][lane] > highest) highest = exponent[v][lane];
    vec sum = splat(0.0);
    for (int64_t v = 0; v < n_vectors; v++) {
        joint[v] *= shares[v] * power_of_two(exponent[v] - highest);
        sum += joint[v];
    }
    double total = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    vec inverse = splat(1.0 / total);
    for (int64_t v = 0; v < n_vectors; v++) joint[v] *= inverse;
    return (double)highest * 0.69314718055994530942 + log(total);
}

INLINE void add_wins(const int32_t *row, int64_t n_items, const vec *inverse, vec share, int64_t n_vectors, vec *sums) {
    vec offers = splat(0.0);
    int64_t place = 0;
#define ADD(item, offered)                              \
    do {                                                \
        vec *entry = sums + (item) * (2 * n_vectors);   \
        entry[0] += (offered);                          \
        entry[n_vectors] += share;                      \
    } while (0)
    for (; place + 4 <= n_items - 1; place += 4) {
        vec c0 = share * inverse[place], c1 = share * inverse[place + 1];
        vec c2 = share * inverse[place + 2], c3 = share * inverse[place + 3];
        vec o0 = offers + c0, o1 = offers + (c0 + c1), o2 = o1 + c2, o3 = o1 + (c2 + c3);
        ADD((int64_t)row[place], o0);
        ADD((int64_t)row[place + 1], o1);
        ADD((int64_t)row[place + 2], o2);
        ADD((int64_t)row[place + 3], o3);
        offers = o3;
    }
    for (; place < n_items - 1; place++) {
        offers += share * inverse[place];
        ADD((int64_t)row[place], offers);
    }
    sums[row[place] * (2 * n_vectors)] += offers;
#undef ADD
}

/* Rates of a short row, for four components at once. */
INLINE void scatter(const int32_t *row, int64_t n_items, const vec *inverse, vec share, int64_t n_vectors, vec *rates) {
    for (int64_t place = 0; place < n_items - 1; place++) {
        vec rate = share * inverse[place];
        vec *line = rates + row[place] * n_items * n_vectors;
        for (int64_t other = place + 1; other < n_items; other++) line[row[other] * n_vectors] += rate;
    }
}

INLINE int64_t padded(int64_t n_items) { return (n_items + 3) / 4 * 4; }

/* Add the queued rows of one component to its rates. */
static void sweep(Pass *pass, int64_t component) {
    int64_t n = pass->n_items, width = padded(n);
    const double *places = pass->queued_places + component * QUEUE * width;
    const double *rates = pass->queued_rates + component * QUEUE * n;
    for (int64_t winner = 0; winner < n; winner++) {
        vec here[QUEUE], rate[QUEUE];
        for (int q = 0; q < QUEUE; q++) {
            here[q] = splat(places[q * width + winner]);
            rate[q] = splat(rates[q * n + winner]);
        }
        vec *line = (vec *)(pass->swept + (component * n + winner) * width);
        for (int64_t v = 0; v < width / 4; v++) {
            vec sum = splat(0.0);
            for (int q = 0; q < QUEUE; q++) {
                ints beaten = ((const vec *)(places + q * width))[v] > here[q];
                sum += (vec)(beaten & (ints)rate[q]);
            }
            line[v] += sum;
        }
    }
    pass->n_queued[component] = 0;
    memset(pass->queued_rates + component * QUEUE * n, 0, sizeof(double) * QUEUE * n);
}

INLINE void queue(Pass *pass, const int32_t *row, const vec *inverses, int64_t component, double share) {
    int64_t n = pass->n_items, width = padded(n), slot = component * QUEUE + pass->n_queued[component]++;
    double *places = pass->queued_places + slot * width, *rates = pass->queued_rates + slot * n;
    const double *inverse = (const double *)inverses + component % 4;
    for (int64_t place = 0; place < n - 1; place++) {
        places[row[place]] = (double)place;
        rates[row[place]] = share * inverse[4 * place];
    }
    places[row[n - 1]] = (double)(n - 1);
    rates[row[n - 1]] = 0.0;
    if (pass->n_queued[component] == QUEUE) sweep(pass, component);
}

INLINE double run(Pass *pass, const int32_t *rankings, int64_t n_rankings, int64_t n_items, int64_t n_vectors,
                  int with_rates) {
    double log_likelihood = 0.0;
    vec joint[BATCH][n_vectors];
    ints exponent[BATCH][n_vectors];
    for (int64_t first = 0; first < n_rankings; first += BATCH) {
        int64_t n_rows = n_rankings - first < BATCH ? n_rankings - first : BATCH;
        const int32_t *row = rankings + first * n_items;
        for (int64_t r = 0; r < n_rows; r++)
            for (int64_t v = 0; v < n_vectors; v++) {
                exponent[r][v] = (ints){0, 0, 0, 0};
                joint[r][v] = evaluate(row + r * n_items, n_items, pass->worths + v, n_vectors,
                                       pass->inverse + (r * n_vectors + v) * n_items, exponent[r] + v);
            }
        for (int64_t r = 0; r < n_rows; r++) log_likelihood += posterior(joint[r], exponent[r], n_vectors, pass->shares);
        for (int64_t r = 0; r < n_rows; r++)
            for (int64_t v = 0; v < n_vectors; v++) {
                const vec *inverse = pass->inverse + (r * n_vectors + v) * n_items;
                vec share = joint[r][v];
                pass->total_shares[v] += share;
                add_wins(row + r * n_items, n_items, inverse, share, n_vectors, pass->sums + v);
                if (!with_rates) continue;
                if (n_items <= LONGEST_SCATTERED)
                    scatter(row + r * n_items, n_items, inverse, share, n_vectors, pass->scattered + v);
                else
                    for (int lane = 0; lane < 4; lane++)
                        if (share[lane] >= NEGLIGIBLE)
                            queue(pass, row + r * n_items, inverse, 4 * v + lane, share[lane]);
            }
    }
    return log_likelihood;
}

static double run_all(Pass *pass, const int32_t *rankings, int64_t n_rankings, int with_rates) {
    /* Constant numbers of vectors let the compiler unroll the loops over them. */
    if (pass->n_vectors == 1) return run(pass, rankings, n_rankings, pass->n_items, 1, with_rates);
    if (pass->n_vectors == 2) return run(pass, rankings, n_rankings, pass->n_items, 2, with_rates);
    return run(pass, rankings, n_rankings, pass->n_items, pass->n_vectors, with_rates);
}

static void *zeros(size_t n_doubles) {
    void *memory = aligned_alloc(64, (n_doubles * sizeof(double) + 63) / 64 * 64);
    memset(memory, 0, n_doubles * sizeof(double));
    return memory;
}

/* All sums over full rankings [n_rankings][n_items]; gives the log-likelihood.
 *
 * worths [n_components][n_items]; shares_out [n_components]; wins, expected_wins [n_components][n_items];
 * rates [n_components][n_items][n_items], or null for the MM pass.
 */
double full_rankings_pass(const int32_t *rankings, int64_t n_rankings, int64_t n_items, int64_t n_components,
                          const double *worths, const double *shares, double *shares_out, double *wins,
                          double *expected_wins, double *rates) {
    int64_t n_vectors = (n_components + 3) / 4, lanes = 4 * n_vectors, width = padded(n_items);
    int swept = rates && n_items > LONGEST_SCATTERED;
    double *worths_in = zeros(n_items * lanes), *shares_in = zeros(lanes), *sums = zeros(2 * n_items * lanes);
    double *total_shares = zeros(lanes);
    for (int64_t i = 0; i < n_items; i++)
        for (int64_t k = 0; k < lanes; k++) worths_in[i * lanes + k] = k < n_components ? worths[k * n_items + i] : 1.0;
    memcpy(shares_in, shares, sizeof(double) * n_components);
    Pass pass = {
        .n_items = n_items,
        .n_vectors = n_vectors,
        .worths = (const vec *)worths_in,
        .shares = (const vec *)shares_in,
        .sums = (vec *)sums,
        .total_shares = (vec *)total_shares,
        .scattered = rates && !swept ? zeros(n_items * n_items * lanes) : NULL,
        .swept = swept ? zeros(n_components * n_items * width) : NULL,
        .inverse = zeros(BATCH * n_items * lanes),
        .queued_places = zeros(n_components * QUEUE * width),
        .queued_rates = zeros(n_components * QUEUE * n_items),
        .n_queued = calloc(n_components, sizeof(int64_t)),
    };
    double log_likelihood = rates ? run_all(&pass, rankings, n_rankings, 1) : run_all(&pass, rankings, n_rankings, 0);
    for (int64_t k = 0; k < n_components; k++) {
        if (pass.n_queued[k]) sweep(&pass, k);
        shares_out[k] = total_shares[k];
        for (int64_t i = 0; i < n_items; i++) {
            double worth = worths_in[i * lanes + k];
            expected_wins[k * n_items + i] = sums[2 * i * lanes + k] * worth;
            wins[k * n_items + i] = sums[(2 * i + 1) * lanes + k];
            if (!rates) continue;
            for (int64_t j = 0; j < n_items; j++)
                rates[(k * n_items + i) * n_items + j] =
                    worth * (swept ? pass.swept[(k * n_items + i) * width + j]
                                   : ((double *)pass.scattered)[(i * n_items + j) * lanes + k]);
        }
    }
    void *owned[] = {worths_in, shares_in, sums, total_shares, pass.scattered, pass.swept, pass.inverse,
                     pass.queued_places, pass.queued_rates, pass.n_queued};
    for (size_t a = 0; a < sizeof owned / sizeof *owned; a++) free(owned[a]);
    return log_likelihood;
}
