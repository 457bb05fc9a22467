/* Lean single-threaded epoll HTTP/2 gRPC echo backend for client benchmarks (loopback lab use only).
 *
 *   be [--die-with-parent] [--bind ADDR] [--raw PORT]... PORT...
 *
 * Port 0 takes a free one. Once listening it prints "up" and the ports, in the order of the arguments.
 * --die-with-parent: the kernel kills it when the process that started it is gone (no orphan after a SIGKILL).
 * It never decodes request headers; behaviour is chosen by the message itself:
 *   ff 'W' 'H' 'O' ...              -> replies with the local "ip:port" of the connection
 *   ff 'S' 'T' 'A' ...              -> replies with "conns=<now> accepted=<n> rpcs=<n> ready=<now> readied=<n>", where a
 *                                      connection is ready once its client has acknowledged our SETTINGS
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

#define HASH 64
#define RB (1 << 18)
#define HIGH (1 << 20)

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
} Conn;

static int ep, nconns, nready, draining;
static uint64_t accepted, rpcs, readied;
static Conn *conns;
static Stream *freelist;
static uint8_t rbuf[RB * 2];
static volatile sig_atomic_t term;
static void on_term(int s) { (void)s; term = 1; }

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
    if (!memcmp(p + 1, "STA", 3)) { char b[192]; int k = snprintf(b, sizeof b, "conns=%d accepted=%lu rpcs=%lu ready=%d readied=%lu", nconns, accepted, rpcs, nready, readied); reply(s, b, k); return; }
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
    if (f & 1) { if (!c->ready) { c->ready = 1; nready++; readied++; } break; }
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
  c->dead = 1; close(c->fd); nconns--; nready -= c->ready;
  for (int i = 0; i < HASH; i++) while (c->tab[i]) drop(c, c->tab[i]);
  if (c->prev) c->prev->next = c->next; else conns = c->next;
  if (c->next) c->next->prev = c->prev;
  free(c->left); free(c->out); free(c);
}
static int do_write(Conn *c) {
  while (c->outlen > c->outoff) {
    ssize_t k = send(c->fd, c->out + c->outoff, c->outlen - c->outoff, MSG_NOSIGNAL);
    if (k < 0) {
      if (errno == EAGAIN) { if (!c->want_out) { c->want_out = 1; struct epoll_event e = {EPOLLIN | EPOLLOUT, {.ptr = c}}; epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &e); } return 0; }
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
static void on_read(Conn *c) {
  if (c->leftlen) memcpy(rbuf, c->left, c->leftlen);
  ssize_t k = recv(c->fd, rbuf + c->leftlen, RB, 0);
  if (k < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (k <= 0) { kill_conn(c); return; }
  if (c->raw) { outw(c, rbuf, k); do_write(c); return; }
  size_t n = c->leftlen + k, o = 0;
  if (!c->preface) {
    if (n < 24) goto keep;
    if (memcmp(rbuf, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24)) { kill_conn(c); return; }
    c->preface = 1; o = 24;
  }
  while (n - o >= 9) {
    size_t len = (size_t)rbuf[o] << 16 | rbuf[o + 1] << 8 | rbuf[o + 2];
    if (n - o - 9 < len) break;
    if (len > RB - 9) { kill_conn(c); return; }
    on_frame(c, rbuf[o + 3], rbuf[o + 4], rd32(rbuf + o + 5) & 0x7fffffff, rbuf + o + 9, len);
    o += 9 + len;
  }
keep:
  if (n - o) { c->left = realloc(c->left, n - o); memcpy(c->left, rbuf + o, n - o); }
  c->leftlen = n - o;
  do_write(c);
}
typedef struct { int fd, raw; } Lst;
static Lst lst[256]; static int nlst;
static void on_accept(Lst *l) {
  for (;;) {
    struct sockaddr_in a; socklen_t al = sizeof a;
    int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    int one = 1; setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    Conn *c = calloc(1, sizeof *c); c->fd = fd; c->raw = l->raw; c->cwnd = c->init_wnd = 65535; c->maxframe = 16384;
    getsockname(fd, (void *)&a, &al); snprintf(c->local, sizeof c->local, "%s:%d", inet_ntoa(a.sin_addr), ntohs(a.sin_port));
    c->next = conns; if (conns) conns->prev = c; conns = c; nconns++; accepted++;
    struct epoll_event e = {EPOLLIN, {.ptr = c}}; epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e);
    if (!c->raw) {
      uint8_t st[6] = {0, 4, 0x01, 0, 0, 0}; /* INITIAL_WINDOW_SIZE 16 MiB */
      fhdr(c, 6, 4, 0, 0); outw(c, st, 6); wupd(c, 0, 1u << 30); do_write(c);
    }
  }
}
int main(int argc, char **argv) {
  const char *bind_ip = "127.0.0.1";
  ep = epoll_create1(EPOLL_CLOEXEC);
  signal(SIGPIPE, SIG_IGN);
  struct sigaction sa = {0}; sa.sa_handler = on_term; sigaction(SIGTERM, &sa, NULL);
  for (int i = 1; i < argc; i++) {
    int raw = 0;
    if (!strcmp(argv[i], "--die-with-parent")) { prctl(PR_SET_PDEATHSIG, SIGKILL); continue; }
    if (!strcmp(argv[i], "--bind")) { bind_ip = argv[++i]; continue; }
    if (!strcmp(argv[i], "--raw")) { raw = 1; i++; }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in a = {0}; a.sin_family = AF_INET; a.sin_port = htons(atoi(argv[i])); inet_aton(bind_ip, &a.sin_addr);
    if (bind(fd, (void *)&a, sizeof a) || listen(fd, 4096)) { perror("bind/listen"); return 1; }
    lst[nlst].fd = fd; lst[nlst].raw = raw;
    struct epoll_event e = {EPOLLIN, {.ptr = &lst[nlst]}}; epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e); nlst++;
  }
  fputs("up", stdout);
  for (int i = 0; i < nlst; i++) { struct sockaddr_in a; socklen_t al = sizeof a; getsockname(lst[i].fd, (void *)&a, &al); printf(" %d", ntohs(a.sin_port)); }
  puts(""); fflush(stdout);
  struct epoll_event ev[256]; struct timespec t0, t1;
  for (;;) {
    int n = epoll_wait(ep, ev, 256, draining ? 20 : -1);
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
      if (ev[i].events & EPOLLIN) on_read(c);
    }
  }
}
