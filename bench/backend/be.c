/* Lean single-threaded epoll HTTP/2 gRPC echo backend for client benchmarks (loopback lab use only).
 *
 *   be [--die-with-parent] [--bind ADDR] [--raw PORT] [--slow PORT] [--certificates DIR] [--tls PORT] [--mtls PORT] PORT...
 *
 * --slow PORT sends its SETTINGS half a second after a connection is accepted.
 * --tls PORT and --mtls PORT need -DWITH_TLS, and server.pem (key and chain) and ca.pem (roots for clients) in DIR.
 * Port 0 takes a free one. Once listening it prints "up" and the ports, in the order of the arguments.
 * --die-with-parent: the kernel kills it when the process that started it is gone (no orphan after a SIGKILL).
 * It never decodes request headers; behaviour is chosen by the message itself:
 *   ff 'W' 'H' 'O' ...              -> replies with the local "ip:port" of the connection
 *   ff 'S' 'T' 'A' ...              -> replies with "conns=<now> accepted=<n> rpcs=<n> ready=<now> readied=<n> resumed=<n>",
 *                                      where a connection is ready once its client has acknowledged our SETTINGS, and
 *                                      resumed if that one resumed a TLS session
 *   ff 'D' 'R' 'P' ...              -> replies, and closes all connections with TLS
 *   ff 'S' 'T' 'R' u32 n u32 size   -> server-streams n messages of size bytes (one DATA frame per message if it fits)
 *   anything else                   -> echoes each complete gRPC message (unary and bidi)
 * HTTP/2 flow control of the peer is honoured; own windows are huge. Responses use HPACK incremental indexing once
 * and then indexed fields (2 + 1 bytes), unless the peer sets SETTINGS_HEADER_TABLE_SIZE=0.
 * SIGTERM: closes listeners, sends GOAWAY, exits once streams are drained (at most 1 s). SIGKILL: abrupt.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#ifdef WITH_TLS
#include <openssl/ssl.h>
#else
typedef void SSL;
#endif

#define HASH 64
#define RB (1 << 18)
#define HIGH (1 << 20)
#define SLOW_MS 500

typedef struct Stream {
  struct Stream *next;
  uint32_t id;
  int hdr_sent, end_in;
  int64_t swnd, recv_unacked;
  uint8_t *in; size_t inlen, incap;
  uint8_t *ob; size_t oboff, oblen, obcap;
  uint32_t gen_left, gen_size;
} Stream;

typedef struct Conn {
  int fd, raw, preface, table0, indexed, want_out, dead, nstreams, ready;
  uint8_t *left; size_t leftlen;
  uint8_t *out; size_t outoff, outlen, outcap;
  int64_t cwnd, init_wnd, recv_unacked;
  uint32_t maxframe, last_sid;
  Stream *tab[HASH];
  char local[64];
  struct Conn *prev, *next;
  SSL *ssl;
  struct Conn *next_slow; int64_t due_ms;
} Conn;

static int ep, nconns, nready, draining;
static uint64_t accepted, rpcs, readied, resumed;
static int drop_tls;
static Conn *slow_first, *slow_last;
static Conn *conns;
static Stream *freelist;
static uint8_t rbuf[RB * 2];
static volatile sig_atomic_t term;
static void on_term(int s) { (void)s; term = 1; }

#ifdef WITH_TLS
static SSL_CTX *tls_ctx, *mtls_ctx;
static int on_alpn(SSL *s, const unsigned char **out, unsigned char *outlen, const unsigned char *in, unsigned int inlen, void *arg) {
  (void)s; (void)arg;
  return SSL_select_next_proto((unsigned char **)out, outlen, (const unsigned char *)"\x02h2", 3, in, inlen) == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}
static SSL_CTX *new_ctx(const char *dir, int wants_client) {
  char cert[4096], ca[4096];
  snprintf(cert, sizeof cert, "%s/server.pem", dir); snprintf(ca, sizeof ca, "%s/ca.pem", dir);
  SSL_CTX *x = SSL_CTX_new(TLS_server_method());
  SSL_CTX_set_mode(x, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_read_ahead(x, 1);
  SSL_CTX_set_alpn_select_cb(x, on_alpn, NULL);
  SSL_CTX_set_session_id_context(x, (const unsigned char *)"be", 2);
  if (wants_client) SSL_CTX_set_verify(x, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
  if (SSL_CTX_use_certificate_chain_file(x, cert) != 1 || SSL_CTX_use_PrivateKey_file(x, cert, SSL_FILETYPE_PEM) != 1 || SSL_CTX_load_verify_locations(x, ca, NULL) != 1) { fprintf(stderr, "certificates of %s are not usable\n", dir); exit(1); }
  return x;
}
static int tls_is_resumed(Conn *c) { return c->ssl && SSL_session_reused(c->ssl); }
/* As recv and send: -1 with errno EAGAIN if it has to wait. */
static ssize_t tls_result(Conn *c, int k) {
  if (k > 0) return k;
  switch (SSL_get_error(c->ssl, k)) {
  case SSL_ERROR_WANT_READ: case SSL_ERROR_WANT_WRITE: errno = EAGAIN; return -1;
  case SSL_ERROR_ZERO_RETURN: return 0;
  default: errno = ECONNRESET; return -1;
  }
}
static ssize_t conn_recv(Conn *c, void *p, size_t n) {
  if (!c->ssl) return recv(c->fd, p, n, 0);
  size_t got = 0;
  while (got < n) { /* a record at a time */
    ssize_t k = tls_result(c, SSL_read(c->ssl, (char *)p + got, n - got));
    if (k <= 0) return got ? (ssize_t)got : k;
    got += k;
  }
  return got;
}
static ssize_t conn_send(Conn *c, const void *p, size_t n) {
  return c->ssl ? tls_result(c, SSL_write(c->ssl, p, n > INT32_MAX ? INT32_MAX : (int)n)) : send(c->fd, p, n, MSG_NOSIGNAL);
}
static int in_handshake(Conn *c) { return c->ssl && !SSL_is_init_finished(c->ssl); }
static void conn_close(Conn *c) { if (c->ssl) { SSL_set_shutdown(c->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN); SSL_free(c->ssl); } close(c->fd); }
#else
static int tls_is_resumed(Conn *c) { (void)c; return 0; }
static ssize_t conn_recv(Conn *c, void *p, size_t n) { return recv(c->fd, p, n, 0); }
static ssize_t conn_send(Conn *c, const void *p, size_t n) { return send(c->fd, p, n, MSG_NOSIGNAL); }
static int in_handshake(Conn *c) { (void)c; return 0; }
static void conn_close(Conn *c) { close(c->fd); }
#endif
static int64_t now_ms(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000; }

static uint32_t rd32(const uint8_t *p) { return (uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3]; }
static void wr32(uint8_t *p, uint32_t v) { p[0] = v >> 24; p[1] = v >> 16; p[2] = v >> 8; p[3] = v; }

static uint8_t *grow(uint8_t **b, size_t *cap, size_t need) {
  if (need > *cap) { size_t c = *cap ? *cap : 512; while (c < need) c *= 2; *b = realloc(*b, c); *cap = c; }
  return *b;
}
static void outw(Conn *c, const void *p, size_t n) {
  if (c->outoff && c->outoff == c->outlen) c->outoff = c->outlen = 0;
  /* A connection that is always behind never empties the buffer: what is sent must not stay in memory. */
  if (c->outoff > HIGH) { memmove(c->out, c->out + c->outoff, c->outlen - c->outoff); c->outlen -= c->outoff; c->outoff = 0; }
  grow(&c->out, &c->outcap, c->outlen + n);
  memcpy(c->out + c->outlen, p, n); c->outlen += n;
}
static void fhdr(Conn *c, uint32_t len, uint8_t t, uint8_t f, uint32_t sid) {
  uint8_t h[9] = {len >> 16, len >> 8, len, t, f}; wr32(h + 5, sid); outw(c, h, 9);
}
static Stream *find(Conn *c, uint32_t id) {
  for (Stream *s = c->tab[(id >> 1) % HASH]; s; s = s->next) if (s->id == id) return s;
  return NULL;
}
static Stream *open_stream(Conn *c, uint32_t id) {
  Stream *s = freelist;
  if (s) { freelist = s->next; uint8_t *in = s->in, *ob = s->ob; size_t a = s->incap, b = s->obcap;
           memset(s, 0, sizeof *s); s->in = in; s->ob = ob; s->incap = a; s->obcap = b; }
  else s = calloc(1, sizeof *s);
  s->id = id; s->swnd = c->init_wnd;
  s->next = c->tab[(id >> 1) % HASH]; c->tab[(id >> 1) % HASH] = s; c->nstreams++;
  return s;
}
static void drop(Conn *c, Stream *s) {
  Stream **p = &c->tab[(s->id >> 1) % HASH];
  while (*p && *p != s) p = &(*p)->next;
  if (*p) *p = s->next;
  c->nstreams--;
  if (s->incap > 1 << 20) { free(s->in); s->in = NULL; s->incap = 0; }
  if (s->obcap > 1 << 20) { free(s->ob); s->ob = NULL; s->obcap = 0; }
  s->next = freelist; freelist = s;
}
/* ":status 200", "content-type application/grpc" and "grpc-status 0" */
static const uint8_t H_LIT[] = "\x88\x0f\x10\x10" "application/grpc";
static const uint8_t H_INC[] = "\x88\x5f\x10" "application/grpc";
static const uint8_t T_LIT[] = "\x00\x0b" "grpc-status" "\x01" "0";
static const uint8_t T_INC[] = "\x40\x0b" "grpc-status" "\x01" "0";
/* dynamic table after both insertions: 62 = newest. Indexing is done once, both fields in the first HEADERS/trailers. */
static void send_headers(Conn *c, uint32_t sid) {
  if (c->table0) { fhdr(c, sizeof H_LIT - 1, 1, 4, sid); outw(c, H_LIT, sizeof H_LIT - 1); }
  else if (!(c->indexed & 1)) { c->indexed |= 1; if (c->indexed & 2) c->indexed |= 4; /* content-type newest */
    fhdr(c, sizeof H_INC - 1, 1, 4, sid); outw(c, H_INC, sizeof H_INC - 1); }
  else { uint8_t b[2] = {0x88, (c->indexed & 2) && !(c->indexed & 4) ? 0xbf : 0xbe}; fhdr(c, 2, 1, 4, sid); outw(c, b, 2); }
}
static void send_trailers(Conn *c, uint32_t sid) {
  if (c->table0) { fhdr(c, sizeof T_LIT - 1, 1, 5, sid); outw(c, T_LIT, sizeof T_LIT - 1); }
  else if (!(c->indexed & 2)) { c->indexed |= 2; fhdr(c, sizeof T_INC - 1, 1, 5, sid); outw(c, T_INC, sizeof T_INC - 1); }
  else { uint8_t b[1] = {0xbe}; fhdr(c, 1, 1, 5, sid); outw(c, b, 1); }
  rpcs++;
}
static void flush_stream(Conn *c, Stream *s) {
  while (s->oblen > s->oboff || s->gen_left) {
    if (c->outlen - c->outoff > HIGH) return;
    if (!s->hdr_sent) { send_headers(c, s->id); s->hdr_sent = 1; }
    if (s->oblen == s->oboff) { /* generate one message */
      s->oboff = s->oblen = 0; size_t n = s->gen_size + 5;
      grow(&s->ob, &s->obcap, n); s->ob[0] = 0; wr32(s->ob + 1, s->gen_size); memset(s->ob + 5, 'x', s->gen_size);
      s->oblen = n; s->gen_left--;
    }
    int64_t n = s->oblen - s->oboff;
    if (n > c->maxframe) n = c->maxframe;
    if (n > s->swnd) n = s->swnd;
    if (n > c->cwnd) n = c->cwnd;
    if (n <= 0) return;
    fhdr(c, n, 0, 0, s->id); outw(c, s->ob + s->oboff, n);
    s->oboff += n; s->swnd -= n; c->cwnd -= n;
    if (s->oboff == s->oblen) s->oboff = s->oblen = 0;
  }
  if (s->end_in) {
    if (!s->hdr_sent) send_headers(c, s->id);
    send_trailers(c, s->id); drop(c, s);
  }
}
static void flush_all(Conn *c) {
  for (int i = 0; i < HASH; i++)
    for (Stream *s = c->tab[i], *n; s; s = n) { n = s->next; if (s->oblen > s->oboff || s->gen_left) flush_stream(c, s); }
}
static void reply(Stream *s, const void *p, size_t n) {
  if (s->oboff == s->oblen) s->oboff = s->oblen = 0;
  grow(&s->ob, &s->obcap, s->oblen + n + 5);
  s->ob[s->oblen] = 0; wr32(s->ob + s->oblen + 1, n); memcpy(s->ob + s->oblen + 5, p, n); s->oblen += n + 5;
}
static void on_msg(Conn *c, Stream *s, const uint8_t *p, size_t n) {
  if (n >= 4 && p[0] == 0xff) {
    if (!memcmp(p + 1, "WHO", 3)) { reply(s, c->local, strlen(c->local)); return; }
    if (!memcmp(p + 1, "STA", 3)) { char b[192]; int k = snprintf(b, sizeof b, "conns=%d accepted=%lu rpcs=%lu ready=%d readied=%lu resumed=%lu", nconns, accepted, rpcs, nready, readied, resumed); reply(s, b, k); return; }
    if (!memcmp(p + 1, "DRP", 3)) drop_tls = 1;
    if (!memcmp(p + 1, "STR", 3) && n >= 12) { s->gen_left = rd32(p + 4); s->gen_size = rd32(p + 8); return; }
  }
  reply(s, p, n);
}
static void on_data(Conn *c, Stream *s, const uint8_t *p, size_t n) {
  if (!s->inlen && n >= 5 && rd32(p + 1) == n - 5) { on_msg(c, s, p + 5, n - 5); return; }
  if (!n) return;
  grow(&s->in, &s->incap, s->inlen + n); memcpy(s->in + s->inlen, p, n); s->inlen += n;
  size_t o = 0;
  while (s->inlen - o >= 5) { size_t m = rd32(s->in + o + 1); if (s->inlen - o - 5 < m) break; on_msg(c, s, s->in + o + 5, m); o += 5 + m; }
  if (o) { memmove(s->in, s->in + o, s->inlen - o); s->inlen -= o; }
}
static void wupd(Conn *c, uint32_t sid, uint32_t n) { uint8_t b[4]; wr32(b, n); fhdr(c, 4, 8, 0, sid); outw(c, b, 4); }

static void on_frame(Conn *c, uint8_t t, uint8_t f, uint32_t sid, const uint8_t *p, size_t n) {
  Stream *s;
  switch (t) {
  case 1: /* HEADERS */
    if (sid > c->last_sid) { c->last_sid = sid; s = open_stream(c, sid); } else s = find(c, sid);
    if (s && f & 1) { s->end_in = 1; flush_stream(c, s); }
    break;
  case 0: { /* DATA */
    size_t len = n;
    if (f & 8) { n -= 1 + p[0]; p++; }
    c->recv_unacked += len;
    if (c->recv_unacked > 1 << 28) { wupd(c, 0, c->recv_unacked); c->recv_unacked = 0; }
    s = find(c, sid); if (!s) break;
    if (f & 1) s->end_in = 1;
    s->recv_unacked += len;
    if (!s->end_in && s->recv_unacked > 1 << 22) { wupd(c, sid, s->recv_unacked); s->recv_unacked = 0; }
    on_data(c, s, p, n); flush_stream(c, s);
    break; }
  case 3: s = find(c, sid); if (s) drop(c, s); break;
  case 4:
    if (f & 1) { if (!c->ready) { c->ready = 1; nready++; readied++; resumed += tls_is_resumed(c); } break; }
    for (size_t i = 0; i + 6 <= n; i += 6) {
      uint32_t v = rd32(p + i + 2); int id = p[i] << 8 | p[i + 1];
      if (id == 1) c->table0 = v < 4096;
      else if (id == 5) c->maxframe = v > 1 << 20 ? 1 << 20 : v;
      else if (id == 4) { int64_t d = (int64_t)v - c->init_wnd; c->init_wnd = v;
        for (int k = 0; k < HASH; k++) for (s = c->tab[k]; s; s = s->next) s->swnd += d; }
    }
    fhdr(c, 0, 4, 1, 0); flush_all(c); break;
  case 6: if (!(f & 1)) { fhdr(c, 8, 6, 1, 0); outw(c, p, 8); } break;
  case 8:
    if (!sid) { c->cwnd += rd32(p) & 0x7fffffff; flush_all(c); }
    else if ((s = find(c, sid))) { s->swnd += rd32(p) & 0x7fffffff; flush_stream(c, s); }
    break;
  default: break;
  }
}
static void kill_conn(Conn *c) {
  if (c->dead) return;
  c->dead = 1; conn_close(c); nconns--; nready -= c->ready;
  for (int i = 0; i < HASH; i++) while (c->tab[i]) drop(c, c->tab[i]);
  if (c->prev) c->prev->next = c->next; else conns = c->next;
  if (c->next) c->next->prev = c->prev;
  free(c->left); free(c->out); free(c);
}
static int do_write(Conn *c) {
  while (c->outlen > c->outoff) {
    ssize_t k = conn_send(c, c->out + c->outoff, c->outlen - c->outoff);
    if (k < 0) {
      if (errno == EAGAIN) { if (!c->want_out && !in_handshake(c)) { c->want_out = 1; struct epoll_event e = {EPOLLIN | EPOLLOUT, {.ptr = c}}; epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e); } return 0; }
      if (errno == EINTR) continue;
      kill_conn(c); return -1;
    }
    c->outoff += k;
    if (c->outlen == c->outoff) { c->outlen = c->outoff = 0; if (!c->raw) flush_all(c); }
  }
  if (c->want_out) { c->want_out = 0; struct epoll_event e = {EPOLLIN, {.ptr = c}}; epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e); }
  if (c->outcap > 4 << 20) { free(c->out); c->out = NULL; c->outcap = c->outlen = c->outoff = 0; }
  return 0;
}
/* Returns whether more may have been received: TLS may hold bytes that the kernel does not have any more. */
static int on_read(Conn *c) {
  if (c->leftlen) memcpy(rbuf, c->left, c->leftlen);
  ssize_t k = conn_recv(c, rbuf + c->leftlen, RB);
  if (k < 0 && (errno == EAGAIN || errno == EINTR)) { if (c->ssl) do_write(c); return 0; }
  if (k <= 0) { kill_conn(c); return 0; }
  if (c->raw) { outw(c, rbuf, k); do_write(c); return 0; }
  size_t n = c->leftlen + k, o = 0;
  if (!c->preface) {
    if (n < 24) goto keep;
    if (memcmp(rbuf, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24)) { kill_conn(c); return 0; }
    c->preface = 1; o = 24;
  }
  while (n - o >= 9) {
    size_t len = (size_t)rbuf[o] << 16 | rbuf[o + 1] << 8 | rbuf[o + 2];
    if (n - o - 9 < len) break;
    if (len > RB - 9) { kill_conn(c); return 0; }
    on_frame(c, rbuf[o + 3], rbuf[o + 4], rd32(rbuf + o + 5) & 0x7fffffff, rbuf + o + 9, len);
    o += 9 + len;
  }
keep:
  if (n - o) { c->left = realloc(c->left, n - o); memcpy(c->left, rbuf + o, n - o); }
  c->leftlen = n - o;
  return !do_write(c) && k == RB;
}
enum { PLAIN, RAW, SLOW, TLS, MTLS };
typedef struct { int fd, kind; } Lst;
static Lst lst[256]; static int nlst;
static void start(Conn *c) {
  struct epoll_event e = {EPOLLIN, {.ptr = c}}; epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &e);
  if (c->raw) return;
  uint8_t st[6] = {0, 4, 0x01, 0, 0, 0}; /* INITIAL_WINDOW_SIZE 16 MiB */
  fhdr(c, 6, 4, 0, 0); outw(c, st, 6); wupd(c, 0, 1u << 30); do_write(c);
}
/* Starts the slow connections that are due; returns the milliseconds until the next one, or -1. */
static int start_slow(void) {
  for (int64_t now = now_ms(); slow_first; ) {
    Conn *c = slow_first;
    if (c->due_ms > now) return (int)(c->due_ms - now);
    slow_first = c->next_slow;
    if (!slow_first) slow_last = NULL;
    start(c);
  }
  return -1;
}
static void on_accept(Lst *l) {
  for (;;) {
    struct sockaddr_in a; socklen_t al = sizeof a;
    int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    int one = 1; setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    Conn *c = calloc(1, sizeof *c); c->fd = fd; c->raw = l->kind == RAW; c->cwnd = c->init_wnd = 65535; c->maxframe = 16384;
    getsockname(fd, (void *)&a, &al); snprintf(c->local, sizeof c->local, "%s:%d", inet_ntoa(a.sin_addr), ntohs(a.sin_port));
    c->next = conns; if (conns) conns->prev = c; conns = c; nconns++; accepted++;
#ifdef WITH_TLS
    if (l->kind >= TLS) { c->ssl = SSL_new(l->kind == TLS ? tls_ctx : mtls_ctx); SSL_set_fd(c->ssl, fd); SSL_set_accept_state(c->ssl); }
#endif
    if (l->kind == SLOW) {
      c->due_ms = now_ms() + SLOW_MS;
      if (slow_last) slow_last->next_slow = c; else slow_first = c;
      slow_last = c;
    } else start(c);
  }
}
int main(int argc, char **argv) {
  const char *bind_ip = "127.0.0.1", *dir = ".";
  ep = epoll_create1(EPOLL_CLOEXEC);
  signal(SIGPIPE, SIG_IGN);
  struct sigaction sa = {0}; sa.sa_handler = on_term; sigaction(SIGTERM, &sa, NULL);
  for (int i = 1; i < argc; i++) {
    int kind = PLAIN;
    if (!strcmp(argv[i], "--die-with-parent")) { prctl(PR_SET_PDEATHSIG, SIGKILL); continue; }
    if (!strcmp(argv[i], "--bind")) { bind_ip = argv[++i]; continue; }
    if (!strcmp(argv[i], "--certificates")) { dir = argv[++i]; continue; }
    if (!strcmp(argv[i], "--raw")) { kind = RAW; i++; }
    else if (!strcmp(argv[i], "--slow")) { kind = SLOW; i++; }
    else if (!strcmp(argv[i], "--tls")) { kind = TLS; i++; }
    else if (!strcmp(argv[i], "--mtls")) { kind = MTLS; i++; }
#ifdef WITH_TLS
    if (kind == TLS && !tls_ctx) tls_ctx = new_ctx(dir, 0);
    if (kind == MTLS && !mtls_ctx) mtls_ctx = new_ctx(dir, 1);
#else
    if (kind >= TLS) { fprintf(stderr, "built without TLS, which %s needs\n", dir); return 1; }
#endif
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in a = {0}; a.sin_family = AF_INET; a.sin_port = htons(atoi(argv[i])); inet_aton(bind_ip, &a.sin_addr);
    if (bind(fd, (void *)&a, sizeof a) || listen(fd, 4096)) { perror("bind/listen"); return 1; }
    lst[nlst].fd = fd; lst[nlst].kind = kind;
    struct epoll_event e = {EPOLLIN, {.ptr = &lst[nlst]}}; epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e); nlst++;
  }
  fputs("up", stdout);
  for (int i = 0; i < nlst; i++) { struct sockaddr_in a; socklen_t al = sizeof a; getsockname(lst[i].fd, (void *)&a, &al); printf(" %d", ntohs(a.sin_port)); }
  puts(""); fflush(stdout);
  struct epoll_event ev[256]; struct timespec t0, t1;
  for (;;) {
    int n = epoll_wait(ep, ev, 256, draining ? 20 : start_slow());
    if (term && !draining) {
      draining = 1; clock_gettime(CLOCK_MONOTONIC, &t0);
      for (int i = 0; i < nlst; i++) close(lst[i].fd);
      for (Conn *c = conns, *nx; c; c = nx) { nx = c->next; if (c->raw) continue; uint8_t b[8]; wr32(b, c->last_sid); wr32(b + 4, 0); fhdr(c, 8, 7, 0, 0); outw(c, b, 8); do_write(c); }
      continue;
    }
    if (draining) {
      int busy = 0; for (Conn *c = conns; c; c = c->next) busy += c->nstreams;
      clock_gettime(CLOCK_MONOTONIC, &t1);
      long ms = (t1.tv_sec - t0.tv_sec) * 1000 + (t1.tv_nsec - t0.tv_nsec) / 1000000;
      if ((!busy && ms > 100) || ms > 1000) return 0;
    }
    for (int i = 0; i < n; i++) {
      void *p = ev[i].data.ptr;
      if (p >= (void *)lst && p < (void *)(lst + nlst)) { if (!draining) on_accept(p); continue; }
      Conn *c = p;
      if (ev[i].events & (EPOLLERR | EPOLLHUP)) { kill_conn(c); continue; }
      if (ev[i].events & EPOLLOUT) { if (do_write(c)) continue; }
      if (ev[i].events & EPOLLIN) while (on_read(c)) ;
    }
    if (drop_tls) { drop_tls = 0; for (Conn *c = conns, *nx; c; c = nx) { nx = c->next; if (c->ssl) kill_conn(c); } }
  }
}
