import { useCallback, useState } from 'react';
import type { Rest } from '../api/rest.ts';
import { Confirm } from '../parts/confirm.tsx';
import { InputField } from '../parts/fields.tsx';
import { usePage } from '../parts/page-context.tsx';
import { Content } from '../parts/page-frame.tsx';
import { useLoad, useWork, WorkTrouble } from '../parts/use-work.tsx';
import type { Say } from '../words/words.ts';
import {
  type Account,
  type Messenger,
  type Offer,
  readAccounts,
  readMessengers,
  readOffer,
  STORED,
} from './channels.ts';

/** Messengers: the user's accounts there, and for the operator the bots. */
export function ChannelsPanel({ rest }: { readonly rest: Rest }) {
  const { say } = usePage();
  const load = useCallback(
    async (signal: AbortSignal) => {
      const [providers, connections] = await Promise.all([
        rest.get('/channels/providers', signal),
        rest.get('/channels/connections', signal),
      ]);
      return { ...readMessengers(providers), accounts: readAccounts(connections) };
    },
    [rest],
  );
  const { value, trouble, reload } = useLoad(load);
  return (
    <section className="panel">
      <h2>{say('channels.title')}</h2>
      <p className="note">{say('channels.about')}</p>
      <Content loading={value === null} trouble={trouble} onRetry={reload}>
        {value?.list.map((messenger) => (
          <MessengerPart
            key={messenger.provider}
            rest={rest}
            messenger={messenger}
            accounts={value.accounts.filter((account) => account.provider === messenger.provider)}
            admin={value.admin}
            onChange={reload}
          />
        ))}
      </Content>
    </section>
  );
}

interface MessengerProps {
  readonly rest: Rest;
  readonly messenger: Messenger;
  readonly accounts: readonly Account[];
  readonly admin: boolean;
  readonly onChange: () => void;
}

function MessengerPart({ rest, messenger, accounts, admin, onChange }: MessengerProps) {
  const { say } = usePage();
  const work = useWork();
  const [offer, setOffer] = useState<Offer | null>(null);
  const [leaving, setLeaving] = useState<Account | null>(null);
  const { provider, title } = messenger;
  return (
    <>
      <h3>{title}</h3>
      <p>{stateText(messenger, say)}</p>
      {accounts.length === 0 ? null : (
        <ul className="rows">
          {accounts.map((account) => (
            <li key={account.id}>
              <span className="row-text">{say('channels.account', { name: account.name })}</span>
              <button type="button" onClick={() => setLeaving(account)}>
                {say('channels.disconnect')}
              </button>
            </li>
          ))}
        </ul>
      )}
      {offer === null ? (
        <button
          type="button"
          disabled={work.busy || !messenger.connectable}
          onClick={() =>
            work.run(async () => setOffer(readOffer(await rest.send('POST', `/channels/${provider}/connect`))))
          }
        >
          {say('channels.connect')}
        </button>
      ) : (
        <div role="status">
          {offer.url === null ? null : (
            <p>
              <a href={offer.url} target="_blank" rel="noreferrer">
                {say('channels.open', { name: title })}
              </a>
            </p>
          )}
          <p>
            {say('channels.or', { minutes: offer.minutes })} <code>/connect {offer.code}</code>
          </p>
          <button
            type="button"
            onClick={() => {
              setOffer(null);
              onChange();
            }}
          >
            {say('channels.done')}
          </button>
        </div>
      )}
      <WorkTrouble trouble={work.trouble} />
      {/* What was stored is shown anew, as a mask. */}
      {admin ? (
        <BotForm key={JSON.stringify(messenger.values)} rest={rest} messenger={messenger} onChange={onChange} />
      ) : null}
      {leaving === null ? null : (
        <Confirm
          title={say('channels.disconnect.title', { name: leaving.name })}
          action={say('channels.disconnect')}
          onClose={() => setLeaving(null)}
          onConfirm={async () => {
            await rest.send('DELETE', `/channels/connections/${encodeURIComponent(leaving.id)}`);
            onChange();
          }}
        >
          <p>{say('channels.disconnect.text')}</p>
        </Confirm>
      )}
    </>
  );
}

/** What the bot needs to be told. A stored secret is never here: the mask stands for it. */
function BotForm({ rest, messenger, onChange }: Pick<MessengerProps, 'rest' | 'messenger' | 'onChange'>) {
  const { say } = usePage();
  const work = useWork();
  const [values, setValues] = useState(messenger.values);
  const path = `/channels/${messenger.provider}`;
  return (
    <details>
      <summary>{say('channels.operator')}</summary>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          work.run(() => rest.send('POST', `${path}/runtime-config`, { values }).then(onChange));
        }}
      >
        {messenger.fields.map((field) => (
          <InputField
            key={field.name}
            label={field.label}
            {...(field.secret && values[field.name] === STORED ? { note: say('channels.stored') } : {})}
            type={field.secret ? 'password' : 'text'}
            autoComplete="off"
            required={field.required}
            value={values[field.name] ?? ''}
            onChange={(text) => setValues((before) => ({ ...before, [field.name]: text }))}
          />
        ))}
        <WorkTrouble trouble={work.trouble} />
        <button type="submit" disabled={work.busy}>
          {say('channels.save')}
        </button>
        {messenger.trouble === 'not_configured' ? null : (
          <>
            <button
              type="button"
              disabled={work.busy}
              onClick={() => work.run(() => rest.send('POST', `${path}/restart`).then(onChange))}
            >
              {say('channels.restart')}
            </button>
            <button
              type="button"
              className="quiet"
              disabled={work.busy}
              onClick={() => work.run(() => rest.send('DELETE', `${path}/runtime-config`).then(onChange))}
            >
              {say('channels.forget')}
            </button>
          </>
        )}
      </form>
    </details>
  );
}

function stateText({ trouble }: Messenger, say: Say): string {
  if (trouble === null) return say('channels.works');
  if (trouble === 'not_configured') return say('channels.off');
  return trouble === 'disabled' ? say('channels.disabled') : trouble;
}
