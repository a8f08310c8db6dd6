/* A load client that costs next to nothing: bytes encoded beforehand, sent over raw sockets, one connection a file.
 *
 *   wire_load ask PORT REQUESTS RATE IN_FLIGHT ERROR_AT FRAME...   RATE 0 is a closed loop of IN_FLIGHT a connection
 *   wire_load fetch PORT END_OFFSET OFFSET_AT ERROR_AT RECORDS_AT FRAME...     reads each from its start to END_OFFSET
 *
 * With a rate, requests leave by the clock whether or not earlier ones are answered, and their latency counts from when
 * they were due, so that a stall shows in all that it holds up. Replies of one connection come in order (Kafka's rule).
 * It then tells of each half second by itself: the ticks that the machine's host stole in it (/proc/stat), and what each
 * request took that was due in it, in microseconds.
 * ERROR_AT and RECORDS_AT are positions in a reply, OFFSET_AT one in the request. Prints one JSON object.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 1024, REPEATED_BYTES = 1 << 16, BATCH_HEADER_BYTES = 61, SLICE_NS = 500000000 };

struct lane {
  char *frames;      /* the frame, repeated while small, so that many leave in one call */
  size_t frame_bytes, frames_bytes;
  uint64_t due, answered, sent_bytes;
  uint64_t *due_ns;  /* when each request was due */
  uint64_t offset;
  char *reply;
  size_t filled, room;
};

static struct lane lanes[CONNECTIONS_MAX];
static struct pollfd polled[CONNECTIONS_MAX];
static int lane_count;

static void fail(const char *what) {
  fprintf(stderr, "wire_load: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
  exit(1);
}

static uint64_t clock_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void open_lane(int port, const char *path) {
  if (lane_count == CONNECTIONS_MAX) fail("too many connections");
  struct lane *lane = &lanes[lane_count];
  FILE *file = fopen(path, "rb");
  if (!file) fail(path);
  fseek(file, 0, SEEK_END);
  lane->frame_bytes = ftell(file);
  rewind(file);
  size_t copies = lane->frame_bytes < REPEATED_BYTES ? REPEATED_BYTES / lane->frame_bytes : 1;
  lane->frames_bytes = copies * lane->frame_bytes;
  lane->frames = malloc(lane->frames_bytes);
  if (fread(lane->frames, 1, lane->frame_bytes, file) != lane->frame_bytes) fail(path);
  fclose(file);
  for (size_t copy = 1; copy < copies; copy++)
    memcpy(lane->frames + copy * lane->frame_bytes, lane->frames, lane->frame_bytes);
  lane->room = 1 << 16;
  lane->reply = malloc(lane->room);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int link = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  if (connect(link, (struct sockaddr *)&address, sizeof address)) fail("connect");
  setsockopt(link, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(link, F_SETFL, O_NONBLOCK);
  polled[lane_count++] = (struct pollfd){.fd = link, .events = POLLIN};
}

/* Sends what is due and the socket takes; asks for POLLOUT when it does not take all. */
static void push(int at) {
  struct lane *lane = &lanes[at];
  uint64_t end = lane->due * lane->frame_bytes;
  while (lane->sent_bytes < end) {
    size_t from = lane->sent_bytes % lane->frames_bytes, left = lane->frames_bytes - from;
    if (left > end - lane->sent_bytes) left = end - lane->sent_bytes;
    ssize_t sent = send(polled[at].fd, lane->frames + from, left, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) fail("send");
    if (sent < 0) break;
    lane->sent_bytes += sent;
  }
  polled[at].events = lane->sent_bytes < end ? POLLIN | POLLOUT : POLLIN;
}

static void pull(int at) {
  struct lane *lane = &lanes[at];
  ssize_t got = recv(polled[at].fd, lane->reply + lane->filled, lane->room - lane->filled, 0);
  if (got < 0 && errno == EAGAIN) return;
  if (got <= 0) fail(got ? "recv" : "the broker closed the connection");
  lane->filled += got;
}

static uint32_t int32_at(const char *bytes) {
  uint32_t value;
  memcpy(&value, bytes, 4);
  return ntohl(value);
}

static void check(const char *reply, size_t error_at) {
  errno = 0;
  if (reply[error_at] || reply[error_at + 1]) {
    fprintf(stderr, "wire_load: the broker answered with error %d\n", (reply[error_at] << 8) | (uint8_t)reply[error_at + 1]);
    exit(1);
  }
}

static int by_value(const void *one, const void *other) {
  uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
  return (a > b) - (a < b);
}

static uint64_t stolen_ticks(void) {
  static int file = -1;
  char text[512];
  unsigned long long stolen = 0;
  if (file < 0) file = open("/proc/stat", O_RDONLY | O_CLOEXEC);
  ssize_t got = file < 0 ? 0 : pread(file, text, sizeof text - 1, 0);
  text[got > 0 ? got : 0] = 0;
  sscanf(text, "cpu %*u %*u %*u %*u %*u %*u %*u %llu", &stolen);
  return stolen;
}

/* Each slice with what was stolen in it and the latencies of its requests; `ticks` has one more, of the end. */
static void print_slices(const uint64_t *latency_ns, const uint32_t *slice, uint64_t requests, const uint64_t *ticks,
                         uint32_t slices) {
  printf(", \"slices\": [");
  for (uint32_t at = 0; at < slices; at++) {
    printf("%s[%llu, [", at ? ", " : "", (unsigned long long)(ticks[at + 1] - ticks[at]));
    for (uint64_t request = 0, first = 1; request < requests; request++) {
      if (slice[request] != at) continue;
      printf("%s%llu", first ? "" : ",", (unsigned long long)(latency_ns[request] / 1000));
      first = 0;
    }
    printf("]]");
  }
  printf("]");
}

static void ask(uint64_t requests, double rate, uint64_t in_flight, size_t error_at) {
  uint64_t *latency_ns = malloc(requests * sizeof *latency_ns), due = 0, answered = 0;
  for (int at = 0; at < lane_count; at++) lanes[at].due_ns = malloc((requests / lane_count + 1) * sizeof(uint64_t));
  uint32_t slices = rate > 0 ? (uint64_t)((requests - 1) / rate * 1e9) / SLICE_NS + 1 : 0, ticks_read = 0;
  uint64_t *ticks = calloc(slices + 1, sizeof *ticks);
  uint32_t *slice = slices ? malloc(requests * sizeof *slice) : NULL;
  prctl(PR_SET_TIMERSLACK, 1);
  uint64_t began_ns = clock_ns(CLOCK_MONOTONIC), now_ns = began_ns;
  while (answered < requests) {
    for (; rate > 0 && due < requests; due++) {
      struct lane *lane = &lanes[due % lane_count];
      uint64_t due_ns = began_ns + (uint64_t)(due / rate * 1e9);
      if (due_ns > now_ns) break;
      lane->due_ns[lane->due++] = due_ns;
    }
    for (int at = 0; rate <= 0 && at < lane_count; at++) {
      struct lane *lane = &lanes[at];
      uint64_t share = requests / lane_count + ((uint64_t)at < requests % lane_count);
      while (lane->due < share && lane->due - lane->answered < in_flight) lane->due_ns[lane->due++] = now_ns;
    }
    for (int at = 0; at < lane_count; at++) push(at);
    while (ticks_read < slices && now_ns - began_ns >= (uint64_t)ticks_read * SLICE_NS)
      ticks[ticks_read++] = stolen_ticks();
    struct timespec wait = {0}, *until = NULL;
    if (rate > 0 && due < requests) {
      uint64_t next_ns = began_ns + (uint64_t)(due / rate * 1e9);
      now_ns = clock_ns(CLOCK_MONOTONIC);
      if (next_ns > now_ns) {
        wait.tv_sec = (next_ns - now_ns) / 1000000000;
        wait.tv_nsec = (next_ns - now_ns) % 1000000000;
      }
      until = &wait;
    }
    if (ppoll(polled, lane_count, until, NULL) < 0) fail("poll");
    now_ns = clock_ns(CLOCK_MONOTONIC);
    for (int at = 0; at < lane_count; at++) {
      struct lane *lane = &lanes[at];
      if (!(polled[at].revents & (POLLIN | POLLHUP | POLLERR))) continue;
      pull(at);
      size_t read = 0, size;
      while (lane->filled - read >= 4 && lane->filled - read >= (size = int32_at(lane->reply + read) + 4)) {
        check(lane->reply + read, error_at);
        uint64_t due_ns = lane->due_ns[lane->answered++];
        if (slices) slice[answered] = (due_ns - began_ns) / SLICE_NS;
        latency_ns[answered++] = now_ns - due_ns;
        read += size;
      }
      memmove(lane->reply, lane->reply + read, lane->filled -= read);
    }
  }
  double wall_s = (clock_ns(CLOCK_MONOTONIC) - began_ns) / 1e9;
  printf("{\"wall_s\": %.6f, \"cpu_s\": %.6f", wall_s, clock_ns(CLOCK_PROCESS_CPUTIME_ID) / 1e9);
  while (ticks_read <= slices) ticks[ticks_read++] = stolen_ticks();
  if (slices) print_slices(latency_ns, slice, requests, ticks, slices);
  qsort(latency_ns, requests, sizeof *latency_ns, by_value);
#define MS(share) (latency_ns[(uint64_t)((requests - 1) * (share))] / 1e6)
  printf(", \"p50_ms\": %.4f, \"p99_ms\": %.4f, \"p999_ms\": %.4f, \"max_ms\": %.4f}\n", MS(.5), MS(.99), MS(.999),
         MS(1));
}

/* The offset after the last whole batch of a reply: brokers may cut the last one off. */
static uint64_t after(const char *records, size_t size, uint64_t offset) {
  while (size >= BATCH_HEADER_BYTES && size >= int32_at(records + 8) + 12u) {
    uint64_t base;
    memcpy(&base, records, 8);
    offset = be64toh(base) + int32_at(records + 23) + 1;
    size_t batch_bytes = int32_at(records + 8) + 12;
    records += batch_bytes;
    size -= batch_bytes;
  }
  return offset;
}

static void fetch(uint64_t end, size_t offset_at, size_t error_at, size_t records_at) {
  uint64_t bytes = 0, began_ns = clock_ns(CLOCK_MONOTONIC), replies = 0;
  int left = lane_count;
  for (int at = 0; at < lane_count; at++) {
    lanes[at].frames_bytes = lanes[at].frame_bytes; /* each has another offset */
    lanes[at].due = 1;
    push(at);
  }
  while (left) {
    if (poll(polled, lane_count, -1) < 0) fail("poll");
    for (int at = 0; at < lane_count; at++) {
      struct lane *lane = &lanes[at];
      if (!polled[at].revents) continue;
      if (polled[at].revents & POLLOUT) push(at);
      if (!(polled[at].revents & ~POLLOUT)) continue;
      pull(at);
      if (lane->filled < 4) continue;
      size_t size = int32_at(lane->reply) + 4;
      if (lane->room < size) lane->reply = realloc(lane->reply, lane->room = size);
      if (lane->filled < size) continue;
      check(lane->reply, error_at);
      lane->offset = after(lane->reply + records_at, size - records_at, lane->offset);
      bytes += size;
      replies++;
      lane->filled = 0;
      if (lane->offset >= end) {
        left--;
        polled[at].fd = -1;
        continue;
      }
      uint64_t offset = htobe64(lane->offset);
      memcpy(lane->frames + offset_at, &offset, 8);
      lane->due++;
      push(at);
    }
  }
  double wall_s = (clock_ns(CLOCK_MONOTONIC) - began_ns) / 1e9;
  printf("{\"wall_s\": %.6f, \"cpu_s\": %.6f, \"bytes\": %llu, \"replies\": %llu}\n", wall_s,
         clock_ns(CLOCK_PROCESS_CPUTIME_ID) / 1e9, (unsigned long long)bytes, (unsigned long long)replies);
}

int main(int count, char **arguments) {
  int is_fetch = count > 1 && !strcmp(arguments[1], "fetch"), first = 7;
  if (count <= first) fail("what it takes stands at the top of its source");
  uint64_t numbers[4];
  for (int at = 0; at < 4; at++) numbers[at] = strtoull(arguments[at + 3], 0, 10);
  for (int at = first; at < count; at++) open_lane(atoi(arguments[2]), arguments[at]);
  if (is_fetch)
    fetch(numbers[0], numbers[1], numbers[2], numbers[3]);
  else
    ask(numbers[0], atof(arguments[4]), numbers[2], numbers[3]);
  return 0;
}
