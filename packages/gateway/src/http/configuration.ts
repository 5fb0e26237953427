import { type JsonObject, ReindeerError } from '@reindeer/protocol';
import { needsRestart, type ReloadState } from '../config/reload.ts';
import type { HttpParts } from './parts.ts';
import { type Api, route } from './route.ts';

const tag = 'About';

const view = (state: ReloadState): JsonObject => ({
  file: state.file,
  revision: state.revision,
  changed: [...state.changed],
  restart: state.restart.map((key) => ({ key, reason: needsRestart(key) ?? 'It is read at the start only.' })),
  fault: state.fault,
});

/** What of `config.yaml` counts, and reading it again. Its values are shown nowhere: they may be secrets. */
export function configurationRoutes(api: Api, parts: HttpParts): void {
  const live = () => {
    if (parts.configuration !== undefined) return parts.configuration;
    throw new ReindeerError('not_implemented', 'The configuration of this process does not change while it runs.');
  };
  route(
    api,
    {
      method: 'get',
      path: '/config',
      tag,
      summary: 'Which configuration counts, which changes wait for a restart, and why the file cannot be used.',
      answers: { 200: '{file, revision, changed, restart: [{key, reason}], fault}' },
    },
    async ({ c }) => {
      await live().refresh();
      return c.json(view(live().state));
    },
  );
  route(
    api,
    {
      method: 'post',
      path: '/config/reload',
      tag,
      summary: 'Reads config.yaml and .env again, whatever they said before.',
      answers: {
        200: 'As GET /config: the keys that changed, and those that wait for a restart.',
        422: 'The file cannot be used: line and key. The earlier configuration still counts.',
      },
    },
    async ({ c }) => {
      await live().refresh('again');
      const { state } = live();
      if (state.fault !== null)
        throw new ReindeerError('validation_failed', `${state.fault}\nThe earlier configuration still counts.`);
      return c.json(view(state));
    },
  );
}
