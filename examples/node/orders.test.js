import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { bill, send } from './orders.js';
import { startBroker } from './broker.js';

let broker;

before(async () => {
  broker = await startBroker('--topic', 'orders:3');
});

after(() => broker.stop());

test('orders are billed once', async () => {
  const { bootstrapServers } = broker;
  await send(bootstrapServers, [
    { key: 'anna', value: '4 apples' },
    { key: 'dora', value: '2 pears' },
  ]);
  assert.deepEqual((await bill(bootstrapServers, 'billing', 2)).sort(), ['2 pears', '4 apples']);

  await send(bootstrapServers, [{ key: 'anna', value: '1 plum' }]);
  assert.deepEqual(await bill(bootstrapServers, 'billing', 1), ['1 plum']);
});
