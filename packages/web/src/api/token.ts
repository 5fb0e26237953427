/** Only what the page needs of `sessionStorage`, which can be switched off: then everything works until a reload. */
export interface Storage {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
  removeItem(key: string): void;
}

const KEY = 'reindeer.token';

/** A storage that never throws. */
export function tolerant(storage: () => Storage): Storage {
  const attempt = <Result>(use: (storage: Storage) => Result, otherwise: Result): Result => {
    try {
      return use(storage());
    } catch {
      return otherwise;
    }
  };
  return {
    getItem: (key) => attempt((store) => store.getItem(key), null),
    setItem: (key, value) => attempt((store) => store.setItem(key, value), undefined),
    removeItem: (key) => attempt((store) => store.removeItem(key), undefined),
  };
}

/**
 * Takes the token out of the address (`#token=…`, which no server ever sees) and keeps it for this tab.
 * `address` answers the fragment and removes it from the address bar, so that it is neither bookmarked nor shared.
 */
export function takeToken(address: { readonly hash: string; clear(): void }, storage: Storage): string | null {
  const given = new URLSearchParams(address.hash.replace(/^#/, '')).get('token');
  if (given !== null && given !== '') {
    address.clear();
    storage.setItem(KEY, given);
    return given;
  }
  return storage.getItem(KEY);
}

export function keepToken(token: string, storage: Storage): void {
  storage.setItem(KEY, token);
}
