import { ReindeerError } from '@reindeer/protocol';

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
const SECRET_WORDS = ['KEY', 'SECRET', 'TOKEN', 'PASS', 'CREDENTIAL', 'DSN'];
/** Names without such a word that carry credentials all the same. */
const SECRET_NAMES = new Set([
  'DATABASE_URL',
  'POSTGRES_URL',
  'POSTGRESQL_URL',
  'PG_URL',
  'MYSQL_URL',
  'MARIADB_URL',
  'MONGO_URL',
  'MONGODB_URL',
  'MONGODB_URI',
  'REDIS_URL',
  'REDIS_URI',
  'VALKEY_URL',
  'AMQP_URL',
  'AMQP_URI',
  'RABBITMQ_URL',
  'CELERY_BROKER_URL',
  'CELERY_RESULT_BACKEND',
  'ELASTICSEARCH_URL',
  'KAFKA_URL',
  'NATS_URL',
  'SQLALCHEMY_DATABASE_URI',
  'MYSQL_PWD',
  'PGSERVICEFILE',
  'GH_PAT',
  'GITHUB_PAT',
  'GITLAB_PAT',
  'AZURE_PAT',
  'NETRC',
  'KUBECONFIG',
  'DOCKER_AUTH_CONFIG',
  'SSH_AUTH_SOCK',
  'GPG_AGENT_INFO',
  'SLACK_WEBHOOK_URL',
  'SMTP_URL',
  'MAIL_URL',
  'HTTP_PROXY',
  'HTTPS_PROXY',
  'ALL_PROXY',
]);
const MAX_VALUE_BYTES = 100_000;
const MAX_VARIABLES = 200;

/** Does a variable of this name probably hold a secret? (SL-13) */
export function looksSecret(name: string): boolean {
  const upper = name.toUpperCase();
  return SECRET_NAMES.has(upper) || SECRET_WORDS.some((word) => upper.includes(word));
}

/** The host's environment without what looks like a secret; for commands that run on the host itself. */
export function scrubEnvironment(host: Readonly<Record<string, string | undefined>>): Record<string, string> {
  const clean: Record<string, string> = {};
  for (const [name, value] of Object.entries(host)) {
    if (value !== undefined && !looksSecret(name)) clean[name] = value;
  }
  return clean;
}

/** Checks variables that somebody adds on purpose (SL-14). Throws `bad_request` that names the variable, never its value. */
export function checkEnvironment(added: Readonly<Record<string, string>>): void {
  const names = Object.entries(added);
  if (names.length > MAX_VARIABLES) {
    throw new ReindeerError('bad_request', `More than ${MAX_VARIABLES} environment variables were given.`);
  }
  for (const [name, value] of names) {
    if (!NAME.test(name)) {
      throw new ReindeerError(
        'bad_request',
        `"${name.slice(0, 60)}" is not a valid environment variable name: use letters, digits and _, and do not start with a digit.`,
        { detail: { field: 'env' } },
      );
    }
    if (value.includes('\0') || Buffer.byteLength(value) > MAX_VALUE_BYTES) {
      throw new ReindeerError(
        'bad_request',
        `The value of ${name} holds a NUL or is longer than ${MAX_VALUE_BYTES} bytes.`,
      );
    }
  }
}

/** The same for `sandbox.environment`, when it is read: not command by command. @throws ReindeerError `configuration` */
export function checkConfiguredEnvironment(environment: Readonly<Record<string, string>>): void {
  try {
    checkEnvironment(environment);
  } catch (cause) {
    if (!ReindeerError.is(cause)) throw cause;
    throw new ReindeerError('configuration', `sandbox: environment: ${cause.message}`, { cause });
  }
}
