/* gguf.c: see gguf.h.
 *
 * One pass over the header fills two tables, keys and tensors, that point into the mapping; nothing is copied, so a
 * file of any size opens in the time its header takes to read.  The header is data from a stranger: every read goes
 * through take(), which compares with the bytes left, and every count is limited by them and by a constant before
 * memory is asked for.  Names are sorted once, which also finds duplicates; look-ups are binary searches.
 * A file that another process shortens while it is mapped raises SIGBUS; no reader of mapped files can prevent that.  Once it is copied
 * it may change.
 */
#include "model/gguf.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_ENTRY 65536		/* keys, and tensors; the largest known model files have some thousands */
#define MAX_ARRAY (1 << 22)	/* elements of an array; vocabularies have up to 300 thousand */
#define MAX_KEY 65535		/* bytes (gguf.md) */
#define MAX_NAME 64		/* bytes of a tensor's name (gguf.md) */
#define MIN_KEY_BYTES 14	/* of a key in the file: length, one byte of name, type, one byte of value */
#define MIN_TENSOR_BYTES 33	/* length, one byte of name, n_dims, one dimension, type, offset */
#define MIN_ALIGNMENT 8		/* gguf.md: a multiple of 8; so that f32 data can be read in place */
#define MAX_ALIGNMENT (1 << 20)
#define DEFAULT_ALIGNMENT 32

enum value {	/* gguf_metadata_value_type */
	V_U8, V_I8, V_U16, V_I16, V_U32, V_I32, V_F32, V_BOOL, V_STR, V_ARRAY, V_U64, V_I64, V_F64, N_VALUE
};

static const char *const value_name[N_VALUE] = {
	"u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"
};
static const size_t value_bytes[N_VALUE] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };	/* 0: of variable length */

struct key {
	rk_str name;
	uint32_t type;		/* enum value */
	uint32_t elem;		/* enum value of an array's elements */
	size_t n;		/* bytes of a string, elements of an array */
	const uint8_t *p;	/* the value; a string's or an array's first byte */
};

struct entry {
	rk_tensor t;
	uint64_t offset;	/* from the start of the tensor data */
};

struct rk_gguf {
	char *path;
	const uint8_t *map;	/* at a multiple of RK_HUGE_PAGE, followed by unused addresses up to the next */
	size_t size;
	bool copied;
	struct key *key;	/* [n_key] sorted by name */
	size_t n_key;
	struct entry *entry;	/* [n_entry] in the order of the file */
	const struct entry **by_name;	/* [n_entry] sorted by name */
	size_t n_entry;
};

#define FAIL(g, e, fmt, ...) rk_fail(e, RK_EMODEL, "%s: " fmt, (g)->path, ##__VA_ARGS__)

/* A name from the file as a message may show it: on one line, without control bytes, not endless. */
struct shown { char s[72]; };

static struct shown show(rk_str name)
{
	struct shown out;
	size_t n = name.len < sizeof out.s - 1 ? name.len : sizeof out.s - 1;
	for (size_t i = 0; i < n; i++)
		out.s[i] = name.s[i] >= ' ' && name.s[i] <= '~' ? name.s[i] : '?';
	out.s[n] = 0;
	return out;
}

static rk_str str_of(const char *s)
{
	return (rk_str){ s, strlen(s) };
}

static int compare(rk_str a, rk_str b)
{
	int c = memcmp(a.s, b.s, a.len < b.len ? a.len : b.len);
	return c ? c : (a.len > b.len) - (a.len < b.len);
}

static int compare_key(const void *a, const void *b)
{
	return compare(((const struct key *)a)->name, ((const struct key *)b)->name);
}

static int compare_entry(const void *a, const void *b)
{
	return compare((*(const struct entry *const *)a)->t.name, (*(const struct entry *const *)b)->t.name);
}

/* Reading the header */

static const rk_str header = { "header", 6 };

struct reader {
	rk_gguf *g;
	size_t at;	/* <= g->size */
	rk_str in;	/* the key or tensor being read, or `header`; for messages */
	rk_err *e;
};

static int take(struct reader *r, size_t n, const uint8_t **p, const char *what)
{
	size_t left = r->g->size - r->at;
	if (n > left) {
		FAIL(r->g, r->e, "truncated or damaged: %s: %s at byte %zu needs %zu bytes, %zu are left", show(r->in).s, what,
		     r->at, n, left);
		return -1;	/* spelled out, for the compiler's sake: *p is set if and only if this is 0 */
	}
	*p = r->g->map + r->at;
	r->at += n;
	return 0;
}

static int take_u32(struct reader *r, uint32_t *v, const char *what)
{
	const uint8_t *p;
	if (take(r, sizeof *v, &p, what))
		return -1;
	memcpy(v, p, sizeof *v);
	return 0;
}

static int take_u64(struct reader *r, uint64_t *v, const char *what)
{
	const uint8_t *p;
	if (take(r, sizeof *v, &p, what))
		return -1;
	memcpy(v, p, sizeof *v);
	return 0;
}

static int take_str(struct reader *r, rk_str *s, const char *what)
{
	uint64_t n;
	const uint8_t *p;
	if (take_u64(r, &n, "length") || take(r, n, &p, what))
		return -1;
	*s = (rk_str){ (const char *)p, n };
	return 0;
}

/* The name that a key or tensor starts with. */
static int take_name(struct reader *r, rk_str *s, size_t max)
{
	size_t at = r->at;
	r->in = header;
	if (take_str(r, s, "name"))
		return -1;
	if (s->len == 0 || s->len > max)
		return FAIL(r->g, r->e, "the name at byte %zu has %zu bytes; 1 to %zu are allowed", at, s->len, max);
	r->in = *s;
	return 0;
}

static int take_array(struct reader *r, struct key *k)
{
	uint64_t n;
	rk_str s;
	if (take_u32(r, &k->elem, "array type") || take_u64(r, &n, "array length"))
		return -1;
	if (k->elem >= N_VALUE || k->elem == V_ARRAY)
		return FAIL(r->g, r->e, "key '%s': array of %s, which is not supported (element type %u)", show(k->name).s,
			    k->elem == V_ARRAY ? "arrays" : "an unknown type", k->elem);
	size_t each = k->elem == V_STR ? sizeof(uint64_t) : value_bytes[k->elem];
	size_t left = r->g->size - r->at;
	if (n > MAX_ARRAY || n > left / each)
		return FAIL(r->g, r->e, "key '%s': array of %llu elements; the limit is %d, and %zu bytes are left",
			    show(k->name).s, (unsigned long long)n, MAX_ARRAY, left);
	k->n = n;
	k->p = r->g->map + r->at;
	if (k->elem != V_STR)
		return take(r, n * each, &k->p, "array");
	for (; n; n--)
		if (take_str(r, &s, "array element"))
			return -1;
	return 0;
}

static int take_key(struct reader *r, struct key *k)
{
	if (take_name(r, &k->name, MAX_KEY) || take_u32(r, &k->type, "type"))
		return -1;
	if (k->type >= N_VALUE)
		return FAIL(r->g, r->e, "key '%s': unknown value type %u", show(k->name).s, k->type);
	if (k->type == V_ARRAY)
		return take_array(r, k);
	if (k->type == V_STR) {
		rk_str s;
		if (take_str(r, &s, "value"))
			return -1;
		k->p = (const uint8_t *)s.s;
		k->n = s.len;
		return 0;
	}
	if (take(r, value_bytes[k->type], &k->p, "value"))
		return -1;
	if (k->type == V_BOOL && *k->p > 1)
		return FAIL(r->g, r->e, "key '%s': bool with the value %u", show(k->name).s, *k->p);
	return 0;
}

/* Fills n_col and n_row.  Every tensor of a llama model is a matrix or a vector: dimensions 3 and 4 must be 1. */
static int take_dims(struct reader *r, rk_tensor *t)
{
	uint32_t n_dim;
	uint64_t dim[4] = { 1, 1, 1, 1 };
	if (take_u32(r, &n_dim, "n_dims"))
		return -1;
	if (n_dim < 1 || n_dim > 4)
		return FAIL(r->g, r->e, "tensor '%s': n_dims is %u; 1 to 4 are allowed", show(t->name).s, n_dim);
	for (uint32_t i = 0; i < n_dim; i++) {
		if (take_u64(r, &dim[i], "dimension"))
			return -1;
		if (dim[i] < 1 || dim[i] > INT64_MAX || (i >= 2 && dim[i] != 1))
			return FAIL(r->g, r->e, "tensor '%s': dimension %u is %llu; %s", show(t->name).s, i + 1,
				    (unsigned long long)dim[i],
				    i >= 2 ? "only matrices and vectors are supported" : "it must be positive");
	}
	t->n_col = (int64_t)dim[0];
	t->n_row = (int64_t)dim[1];
	return 0;
}

static int take_entry(struct reader *r, struct entry *en)
{
	rk_tensor *t = &en->t;
	uint32_t type;
	if (take_name(r, &t->name, MAX_NAME) || take_dims(r, t) || take_u32(r, &type, "type") ||
	    take_u64(r, &en->offset, "offset"))
		return -1;
	t->type = (enum rk_type)type;
	int block = rk_type_block_len(t->type);
	if (!block)
		return FAIL(r->g, r->e, "tensor '%s': %s is not supported (type number %u)", show(t->name).s,
			    rk_type_name(t->type), type);
	if (t->n_col % block)
		return FAIL(r->g, r->e, "tensor '%s': rows of %lld weights do not divide into %s blocks of %d",
			    show(t->name).s, (long long)t->n_col, rk_type_name(t->type), block);
	return 0;
}

/* Where the tensors lie is known only after the last entry.  start = first byte of the tensor data. */
static int place(const rk_gguf *g, struct entry *en, size_t start, size_t alignment, rk_err *e)
{
	rk_tensor *t = &en->t;
	size_t left = start < g->size ? g->size - start : 0, bytes;
	size_t n_block = (size_t)(t->n_col / rk_type_block_len(t->type));
	if (en->offset % alignment)
		return FAIL(g, e, "tensor '%s': offset %llu is not a multiple of the alignment %zu", show(t->name).s,
			    (unsigned long long)en->offset, alignment);
	if (__builtin_mul_overflow(n_block, rk_type_block_bytes(t->type), &bytes) ||
	    __builtin_mul_overflow(bytes, (size_t)t->n_row, &bytes) || bytes > left || en->offset > left - bytes)
		return FAIL(g, e, "truncated or damaged: tensor '%s' (%s, %lld x %lld) at offset %llu does not fit "
			    "the %zu bytes of tensor data", show(t->name).s, rk_type_name(t->type), (long long)t->n_row,
			    (long long)t->n_col, (unsigned long long)en->offset, left);
	t->data = g->map + start + en->offset;
	return 0;
}

static int read_keys(struct reader *r, size_t n)
{
	rk_gguf *g = r->g;
	g->key = calloc(n + 1, sizeof *g->key);
	if (!g->key)
		return rk_fail(r->e, RK_ENOMEM, "%s: no memory for a table of %zu keys", g->path, n);
	for (g->n_key = 0; g->n_key < n; g->n_key++)
		if (take_key(r, &g->key[g->n_key]))
			return -1;
	qsort(g->key, n, sizeof *g->key, compare_key);
	for (size_t i = 1; i < n; i++)
		if (compare_key(&g->key[i - 1], &g->key[i]) == 0)
			return FAIL(g, r->e, "key '%s' occurs twice", show(g->key[i].name).s);
	return 0;
}

static int read_entries(struct reader *r, size_t n)
{
	rk_gguf *g = r->g;
	g->entry = calloc(n + 1, sizeof *g->entry);
	g->by_name = calloc(n + 1, sizeof *g->by_name);
	if (!g->entry || !g->by_name)
		return rk_fail(r->e, RK_ENOMEM, "%s: no memory for a table of %zu tensors", g->path, n);
	for (g->n_entry = 0; g->n_entry < n; g->n_entry++) {
		if (take_entry(r, &g->entry[g->n_entry]))
			return -1;
		g->by_name[g->n_entry] = &g->entry[g->n_entry];
	}
	qsort(g->by_name, n, sizeof *g->by_name, compare_entry);
	for (size_t i = 1; i < n; i++)
		if (compare_entry(&g->by_name[i - 1], &g->by_name[i]) == 0)
			return FAIL(g, r->e, "tensor '%s' occurs twice", show(g->by_name[i]->t.name).s);
	return 0;
}

static int check_magic(struct reader *r)
{
	const uint8_t *m;
	uint32_t version;
	if (take(r, 4, &m, "magic"))
		return -1;
	if (memcmp(m, "GGUF", 4) && memcmp(m, "FUGG", 4))
		return FAIL(r->g, r->e, "not a GGUF file: it starts with the bytes %02x %02x %02x %02x", m[0], m[1], m[2], m[3]);
	if (take_u32(r, &version, "version"))
		return -1;
	if (m[0] == 'F' || (version != 0 && (version & 0xffff) == 0))
		return FAIL(r->g, r->e, "a big-endian GGUF file; only little-endian ones are supported");
	if (version != 2 && version != 3)
		return FAIL(r->g, r->e, "GGUF version %u; versions 2 and 3 are supported", version);
	return 0;
}

/* The count of things that take at least min bytes each in what is left of the file. */
static int check_count(struct reader *r, uint64_t n, size_t min, const char *what)
{
	size_t left = r->g->size - r->at;
	if (n > MAX_ENTRY || n > left / min)
		return FAIL(r->g, r->e, "%llu %s; the limit is %d, and %zu bytes are left", (unsigned long long)n, what,
			    MAX_ENTRY, left);
	return 0;
}

static int read_header(rk_gguf *g, rk_err *e)
{
	struct reader r = { .g = g, .in = header, .e = e };
	uint64_t n_tensor, n_key;
	uint32_t alignment = DEFAULT_ALIGNMENT;
	if (check_magic(&r) || take_u64(&r, &n_tensor, "tensor count") || take_u64(&r, &n_key, "key count"))
		return -1;
	if (check_count(&r, n_key, MIN_KEY_BYTES, "keys") || check_count(&r, n_tensor, MIN_TENSOR_BYTES, "tensors") ||
	    read_keys(&r, n_key) || rk_gguf_u32(g, "general.alignment", &alignment, e) < 0 || read_entries(&r, n_tensor))
		return -1;
	if (alignment < MIN_ALIGNMENT || alignment > MAX_ALIGNMENT || (alignment & (alignment - 1)))
		return FAIL(g, e, "key 'general.alignment' is %u; a power of two from %d to %d is allowed", alignment,
			    MIN_ALIGNMENT, MAX_ALIGNMENT);
	size_t start = (r.at + alignment - 1) / alignment * alignment;
	for (size_t i = 0; i < g->n_entry; i++)
		if (place(g, &g->entry[i], start, alignment, e))
			return -1;
	return 0;
}

static size_t whole_pages(size_t bytes)
{
	return (bytes + RK_HUGE_PAGE - 1) / RK_HUGE_PAGE * RK_HUGE_PAGE;
}

/* Addresses of whole huge pages for that many bytes, with nothing behind them yet; NULL: there are none. */
static uint8_t *reserve(size_t bytes)
{
	size_t whole = whole_pages(bytes);
	uint8_t *p = mmap(NULL, whole + RK_HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	size_t before = (RK_HUGE_PAGE - (uintptr_t)p % RK_HUGE_PAGE) % RK_HUGE_PAGE;
	if (before)
		munmap(p, before);
	munmap(p + before + whole, RK_HUGE_PAGE - before);
	return p + before;
}

static int map_file(rk_gguf *g, rk_err *e)
{
	struct stat st;
	/* O_NONBLOCK: a FIFO must not stop us here; it has no effect on a regular file. */
	int fd = open(g->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc = -1;
	if (fd < 0)
		return FAIL(g, e, "cannot open: %s", strerror(errno));
	if (fstat(fd, &st)) {
		FAIL(g, e, "cannot stat: %s", strerror(errno));
	} else if (!S_ISREG(st.st_mode)) {
		FAIL(g, e, "not a regular file");
	} else if (st.st_size == 0) {
		FAIL(g, e, "the file is empty");
	} else {
		g->size = (size_t)st.st_size;
		g->map = reserve(g->size);
		if (!g->map || mmap((void *)g->map, g->size, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED)
			FAIL(g, e, "cannot map %zu bytes: %s", g->size, strerror(errno));
		else
			rc = 0;
	}
	close(fd);
	return rc;
}

bool rk_gguf_copy(rk_gguf *g)
{
	size_t whole = whole_pages(g->size);

	if (g->copied)
		return true;
	if (g->size < RK_HUGE_PAGE || !rk_huge_pages() || rk_memory_left() / 2 < whole)
		return false;
	uint8_t *copy = reserve(g->size);
	if (!copy)
		return false;
	if (mprotect(copy, whole, PROT_READ | PROT_WRITE) || madvise(copy, whole, MADV_HUGEPAGE))
		goto fail;
	for (size_t at = 0; at < g->size; at += RK_HUGE_PAGE) {
		size_t n = g->size - at < RK_HUGE_PAGE ? g->size - at : RK_HUGE_PAGE;
		memcpy(copy + at, g->map + at, n);
		(void)madvise((void *)(g->map + at), n, MADV_DONTNEED);	/* the file's pages are the page cache's again */
	}
	if (mprotect(copy, whole, PROT_READ) || mremap(copy, whole, whole, MREMAP_MAYMOVE | MREMAP_FIXED, g->map) == MAP_FAILED)
		goto fail;
	g->copied = true;
	return true;
fail:
	munmap(copy, whole);
	return false;
}

int rk_gguf_open(rk_gguf **out, const char *path, rk_err *e)
{
	rk_gguf *g = calloc(1, sizeof *g);
	*out = NULL;
	if (!g || !(g->path = strdup(path))) {
		free(g);
		return rk_fail(e, RK_ENOMEM, "%s: no memory to open it", path);
	}
	if (map_file(g, e) || read_header(g, e)) {
		rk_gguf_close(g);
		return -1;
	}
	*out = g;
	return 0;
}

void rk_gguf_close(rk_gguf *g)
{
	if (!g)
		return;
	if (g->map)
		munmap((void *)g->map, whole_pages(g->size));
	free(g->key);
	free(g->entry);
	free(g->by_name);
	free(g->path);
	free(g);
}

const char *rk_gguf_path(const rk_gguf *g)
{
	return g->path;
}

size_t rk_gguf_bytes(const rk_gguf *g)
{
	return g->size;
}

/* Looking things up */

static const struct key *find(const rk_gguf *g, const char *name)
{
	struct key want = { .name = str_of(name) };
	return bsearch(&want, g->key, g->n_key, sizeof want, compare_key);
}

static int wrong_type(const rk_gguf *g, const struct key *k, const char *want, rk_err *e)
{
	bool array = k->type == V_ARRAY;
	return FAIL(g, e, "key '%s' is of type %s%s; %s is needed", show(k->name).s, array ? "array of " : "",
		    value_name[array ? k->elem : k->type], want);
}

/* An integer of any width as a 64-bit one; a negative one is sign-extended and *negative set.  false: no integer. */
static bool integer(const struct key *k, uint64_t *v, bool *negative)
{
	bool is_signed = k->type == V_I8 || k->type == V_I16 || k->type == V_I32 || k->type == V_I64;
	if (!is_signed && k->type != V_U8 && k->type != V_U16 && k->type != V_U32 && k->type != V_U64)
		return false;
	size_t n = value_bytes[k->type];
	*negative = is_signed && k->p[n - 1] >> 7;
	*v = *negative ? UINT64_MAX : 0;
	memcpy(v, k->p, n);	/* little-endian */
	return true;
}

int rk_gguf_u32(const rk_gguf *g, const char *key, uint32_t *out, rk_err *e)
{
	const struct key *k = find(g, key);
	uint64_t v;
	bool negative;
	if (!k)
		return 1;
	if (!integer(k, &v, &negative))
		return wrong_type(g, k, "an integer", e);
	if (negative)
		return FAIL(g, e, "key '%s' is %lld; 0 to %u are allowed", key, (long long)v, UINT32_MAX);
	if (v > UINT32_MAX)
		return FAIL(g, e, "key '%s' is %llu; 0 to %u are allowed", key, (unsigned long long)v, UINT32_MAX);
	*out = (uint32_t)v;
	return 0;
}

int rk_gguf_f64(const rk_gguf *g, const char *key, double *out, rk_err *e)
{
	const struct key *k = find(g, key);
	float f;
	if (!k)
		return 1;
	if (k->type == V_F64) {
		memcpy(out, k->p, sizeof *out);
	} else if (k->type == V_F32) {
		memcpy(&f, k->p, sizeof f);
		*out = (double)f;
	} else {
		return wrong_type(g, k, "f32 or f64", e);
	}
	return 0;
}

int rk_gguf_bool(const rk_gguf *g, const char *key, bool *out, rk_err *e)
{
	const struct key *k = find(g, key);
	if (!k)
		return 1;
	if (k->type != V_BOOL)
		return wrong_type(g, k, "bool", e);
	*out = *k->p;
	return 0;
}

int rk_gguf_str(const rk_gguf *g, const char *key, rk_str *out, rk_err *e)
{
	const struct key *k = find(g, key);
	if (!k)
		return 1;
	if (k->type != V_STR)
		return wrong_type(g, k, "string", e);
	*out = (rk_str){ (const char *)k->p, k->n };
	return 0;
}

/* Allocates a table for the k->n elements of each bytes; never of 0 bytes, so that NULL means failure. */
static int table(const rk_gguf *g, const struct key *k, size_t each, void **out, rk_err *e)
{
	*out = malloc((k->n + 1) * each);
	if (!*out)
		return rk_fail(e, RK_ENOMEM, "%s: no memory for the %zu elements of key '%s'", g->path, k->n,
			       show(k->name).s);
	return 0;
}

int rk_gguf_str_array(const rk_gguf *g, const char *key, rk_str **out, size_t *n, rk_err *e)
{
	const struct key *k = find(g, key);
	void *to;
	if (!k)
		return 1;
	if (k->type != V_ARRAY || k->elem != V_STR)
		return wrong_type(g, k, "array of string", e);
	if (table(g, k, sizeof **out, &to, e))
		return -1;
	rk_str *s = to;
	const uint8_t *p = k->p;	/* walked and checked by take_array */
	for (size_t i = 0; i < k->n; i++) {
		uint64_t len;
		memcpy(&len, p, sizeof len);
		s[i] = (rk_str){ (const char *)p + sizeof len, len };
		p += sizeof len + len;
	}
	*out = s;
	*n = k->n;
	return 0;
}

int rk_gguf_i32_array(const rk_gguf *g, const char *key, int32_t **out, size_t *n, rk_err *e)
{
	const struct key *k = find(g, key);
	void *to;
	if (!k)
		return 1;
	if (k->type != V_ARRAY || (k->elem != V_I32 && k->elem != V_U32))
		return wrong_type(g, k, "array of i32", e);
	if (table(g, k, sizeof **out, &to, e))
		return -1;
	int32_t *v = memcpy(to, k->p, k->n * sizeof *v);
	for (size_t i = 0; i < k->n && k->elem == V_U32; i++)
		if (v[i] < 0) {
			FAIL(g, e, "key '%s': element %zu is %u; 0 to %d are allowed", key, i, (uint32_t)v[i], INT32_MAX);
			free(v);
			return -1;
		}
	*out = v;
	*n = k->n;
	return 0;
}

size_t rk_gguf_n_tensor(const rk_gguf *g)
{
	return g->n_entry;
}

const rk_tensor *rk_gguf_tensor_at(const rk_gguf *g, size_t i)
{
	return &g->entry[i].t;
}

const rk_tensor *rk_gguf_tensor(const rk_gguf *g, const char *name)
{
	struct entry want = { .t.name = str_of(name) };
	const struct entry *key = &want, **found = bsearch(&key, g->by_name, g->n_entry, sizeof key, compare_entry);
	return found ? &(*found)->t : NULL;
}
