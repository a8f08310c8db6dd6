/* librdkafka as C programs use it: producers, or a consumer, whose loop costs next to nothing beside the library's own work.
 *
 *   rdkafka_load produce BOOTSTRAP TOPIC PARTITIONS RECORD_BYTES BATCH RECORDS ACKS
 *   rdkafka_load consume BOOTSTRAP TOPIC PARTITIONS RECORD_BYTES BATCH RECORDS ACKS
 *
 * It is linked with the library that confluent-kafka brings, which comes without headers; what is used of its interface
 * is declared here. Produce counts from the first record after one to each partition, consume from the first that came,
 * so that neither counts the connecting. Prints one JSON object.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_queue_s rd_kafka_queue_t;
typedef struct {
  int err;
  rd_kafka_topic_t *rkt;
  int32_t partition;
  void *payload;
  size_t len;
  void *key;
  size_t key_len;
  int64_t offset;
  void *opaque;
} rd_kafka_message_t;
enum { RD_KAFKA_PRODUCER, RD_KAFKA_CONSUMER };
enum { RD_KAFKA_MSG_F_BLOCK = 4, RD_KAFKA_OFFSET_BEGINNING = -2 };
rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *, const char *, char *, size_t);
void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *, void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *));
rd_kafka_t *rd_kafka_new(int, rd_kafka_conf_t *, char *, size_t);
rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *, void *);
int rd_kafka_produce_batch(rd_kafka_topic_t *, int32_t, int, rd_kafka_message_t *, int);
int rd_kafka_flush(rd_kafka_t *, int);
rd_kafka_queue_t *rd_kafka_queue_new(rd_kafka_t *);
int rd_kafka_consume_start_queue(rd_kafka_topic_t *, int32_t, int64_t, rd_kafka_queue_t *);
ssize_t rd_kafka_consume_batch_queue(rd_kafka_queue_t *, int, rd_kafka_message_t **, size_t);
void rd_kafka_message_destroy(rd_kafka_message_t *);
const char *rd_kafka_err2str(int);

enum { TIMEOUT_MS = 60000, TOGETHER = 10000, GIVEN = 100 };

static void fail(const char *what) {
  fprintf(stderr, "rdkafka_load: %s\n", what);
  exit(1);
}

static double clock_s(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec + now.tv_nsec / 1e9;
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
  char why[512];
  if (rd_kafka_conf_set(conf, name, value, why, sizeof why)) fail(why);
}

static void undelivered(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
  (void)client, (void)opaque;
  if (message->err) fail(rd_kafka_err2str(message->err));
}

/* Without a copy, and some at a time: else what is measured is how fast the library takes records in. */
static void give(rd_kafka_topic_t *topic, int partition, char *value, int size, int count) {
  rd_kafka_message_t messages[GIVEN];
  for (int at = 0; at < count; at++) messages[at] = (rd_kafka_message_t){.payload = value, .len = size};
  if (rd_kafka_produce_batch(topic, partition, RD_KAFKA_MSG_F_BLOCK, messages, count) != count)
    fail("a record was refused");
}

/* A producer for each partition: one alone is bound by its own threads, and no broker would make a difference. */
struct producer {
  rd_kafka_t *client;
  rd_kafka_topic_t *topic;
  char *value;
  int partition, size;
  long records;
};

static rd_kafka_conf_t *configured(char **arguments) {
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  set(conf, "bootstrap.servers", arguments[2]);
  return conf;
}

static struct producer begun(char **arguments, int partition, char *value, long records) {
  char why[512];
  rd_kafka_conf_t *conf = configured(arguments);
  set(conf, "acks", arguments[8]);
  set(conf, "linger.ms", atoi(arguments[6]) > 10 ? "50" : "5");
  set(conf, "batch.num.messages", arguments[6]);
  set(conf, "batch.size", "1000000");
  set(conf, "queue.buffering.max.messages", "1000000");
  set(conf, "delivery.report.only.error", "true");
  rd_kafka_conf_set_dr_msg_cb(conf, undelivered);
  rd_kafka_t *client = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
  if (!client) fail(why);
  rd_kafka_topic_t *topic = rd_kafka_topic_new(client, arguments[3], NULL);
  int size = atoi(arguments[5]);
  give(topic, partition, value, size, 1);
  if (rd_kafka_flush(client, TIMEOUT_MS)) fail("nothing was acknowledged");
  return (struct producer){client, topic, value, partition, size, records};
}

static void *send_all(void *opaque) {
  struct producer *it = opaque;
  for (long left = it->records; left > 0; left -= GIVEN)
    give(it->topic, it->partition, it->value, it->size, left < GIVEN ? left : GIVEN);
  if (rd_kafka_flush(it->client, TIMEOUT_MS)) fail("not all was acknowledged in time");
  return NULL;
}

static double produce(char **arguments) {
  int partitions = atoi(arguments[4]), size = atoi(arguments[5]);
  char *value = malloc(size);
  struct producer producers[partitions];
  pthread_t threads[partitions];
  srandom(1);
  for (int at = 0; at < size; at++) value[at] = random();
  for (int at = 0; at < partitions; at++)
    producers[at] = begun(arguments, at, value, (atol(arguments[7]) + at) / partitions);
  double began = clock_s(CLOCK_MONOTONIC);
  for (int at = 0; at < partitions; at++)
    if (pthread_create(&threads[at], NULL, send_all, &producers[at])) fail("there is no thread left");
  for (int at = 0; at < partitions; at++) pthread_join(threads[at], NULL);
  return clock_s(CLOCK_MONOTONIC) - began;
}

static double consume(char **arguments) {
  static rd_kafka_message_t *messages[TOGETHER];
  char why[512];
  long records = atol(arguments[7]), found = 0;
  rd_kafka_t *client = rd_kafka_new(RD_KAFKA_CONSUMER, configured(arguments), why, sizeof why);
  if (!client) fail(why);
  rd_kafka_topic_t *topic = rd_kafka_topic_new(client, arguments[3], NULL);
  rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
  for (int partition = 0; partition < atoi(arguments[4]); partition++)
    if (rd_kafka_consume_start_queue(topic, partition, RD_KAFKA_OFFSET_BEGINNING, queue)) fail("can't consume");
  double began = 0;
  while (found < records) {
    ssize_t count = rd_kafka_consume_batch_queue(queue, 1000, messages, TOGETHER);
    if (!began && count > 0) began = clock_s(CLOCK_MONOTONIC);
    for (ssize_t at = 0; at < count; at++) {
      if (messages[at]->err) fail(rd_kafka_err2str(messages[at]->err));
      rd_kafka_message_destroy(messages[at]);
    }
    if (count > 0) found += count;
  }
  return clock_s(CLOCK_MONOTONIC) - began;
}

int main(int count, char **arguments) {
  if (count != 9) fail("what it takes stands at the top of its source");
  double wall_s = (strcmp(arguments[1], "produce") ? consume : produce)(arguments);
  printf("{\"wall_s\": %.6f, \"cpu_s\": %.6f}\n", wall_s, clock_s(CLOCK_PROCESS_CPUTIME_ID));
  fflush(stdout);
  _Exit(0); /* tearing the client down takes seconds and is not what is measured */
}
