import { type FormEvent, useState } from 'react';
import { usePage } from './parts/page-context.tsx';

/** Shown when the server wants a token that this tab does not have. */
export function TokenForm({ onToken }: { readonly onToken: (token: string) => Promise<void> }) {
  const { say } = usePage();
  const [token, setToken] = useState('');
  const [wrong, setWrong] = useState(false);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    setWrong(false);
    onToken(token.trim()).catch(() => setWrong(true));
  };
  return (
    <main className="token">
      <h1>{say('token.title')}</h1>
      <p>{say('token.text')}</p>
      <form className="fields" onSubmit={submit}>
        <div className="field">
          <label htmlFor="token">{say('token.label')}</label>
          <input
            id="token"
            type="password"
            autoComplete="off"
            value={token}
            onChange={(event) => setToken(event.target.value)}
          />
        </div>
        {wrong ? (
          <p role="alert" className="trouble">
            {say('token.wrong')}
          </p>
        ) : null}
        <button type="submit" className="primary" disabled={token.trim() === ''}>
          {say('token.use')}
        </button>
      </form>
    </main>
  );
}
