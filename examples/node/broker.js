// The test broker of ottla as a process of its own; it ends with this process, even with one that is killed.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

/** Start it; the options are those of `ottla test-broker`. */
export async function startBroker(...options) {
  const broker = spawn('ottla', ['test-broker', ...options], { stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = once(broker, 'exit');
  const lines = createInterface({ input: broker.stdout });
  const [bootstrapServers] = await Promise.race([
    once(lines, 'line'),
    ended.then(() => Promise.reject(new Error('the test broker did not start'))),
  ]);
  const stop = async () => {
    broker.stdin.end();
    await ended;
  };
  return { bootstrapServers, stop };
}
