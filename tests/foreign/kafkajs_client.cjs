// The work of a KafkaJS application: administer topics, write (gzip, idempotent, in a transaction),
// and read in a group whose members come and go. Arguments: bootstrap servers and a topic's name.
// Prints one JSON object.
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");

const [servers, topic] = process.argv.slice(2);
const kafka = new Kafka({ brokers: servers.split(","), logLevel: logLevel.NOTHING });

async function read(group, count) {
  const consumer = kafka.consumer({ groupId: group, sessionTimeout: 6000, heartbeatInterval: 300 });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  const values = [];
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
    consumer
      .run({
        eachMessage: async ({ message }) => {
          values.push([message.value.toString(), message.headers.colour?.toString() ?? null]);
          if (values.length >= count) resolve();
        },
      })
      .catch(reject);
  });
  await consumer.disconnect();
  return values;
}

async function main() {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ waitForLeaders: true, topics: [{ topic, numPartitions: 3 }] });

  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  await producer.send({
    topic,
    compression: CompressionTypes.GZIP,
    messages: Array.from({ length: 10 }, (_, i) => ({
      key: `key ${i}`,
      value: `plain ${i}`,
      headers: { colour: "red" },
    })),
  });
  await producer.disconnect();

  const transactional = kafka.producer({ transactionalId: topic, maxInFlightRequests: 1 });
  await transactional.connect();
  for (const keep of [false, true]) {
    const transaction = await transactional.transaction();
    await transaction.send({ topic, messages: [{ value: keep ? "kept" : "aborted" }] });
    await (keep ? transaction.commit() : transaction.abort());
  }
  await transactional.disconnect();

  const values = await read(`group-${topic}`, 11);
  const offsets = await admin.fetchOffsets({ groupId: `group-${topic}`, topics: [topic] });
  const { groups } = await admin.describeGroups([`group-${topic}`]);
  const described = await admin.describeConfigs({
    includeSynonyms: false,
    resources: [{ type: 2, name: topic, configNames: ["cleanup.policy"] }],
  });
  await admin.deleteGroups([`group-${topic}`]);
  await admin.deleteTopics({ topics: [topic] });
  await admin.disconnect();
  console.log(
    JSON.stringify({
      values,
      committed: offsets[0].partitions.reduce((sum, each) => sum + Math.max(0, Number(each.offset)), 0),
      state: groups[0].state,
      policy: described.resources[0].configEntries[0].configValue,
    }),
  );
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
