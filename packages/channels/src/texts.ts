/** Everything that the bot says by itself. */
export const TEXTS = {
  working: '…',
  notConnected:
    'This account is not connected with Reindeer yet, so nothing was started. Open Settings → Channels in Reindeer, press Connect, and send me the code that it shows: /connect <code>',
  connected: (userId: string) =>
    `Connected. From now on what you write here is done for the Reindeer user “${userId}”. If that is not you, open Settings → Channels in your own Reindeer and connect again. Send /help to see what I can do.`,
  codeInvalid:
    'This code is not valid: it was used, is older than 10 minutes, or was mistyped. Open Settings → Channels in Reindeer and ask for a new one.',
  hello: 'Send me what you want done. /help shows the commands.',
  busy: 'I am still working on your last message in this conversation. Try again when it is answered.',
  full: 'As much is going on as this server takes. Try again in a few minutes.',
  forbidden: 'Your role may not start anything here. The operator of this server can change that.',
  empty: 'Done. There is nothing to say about it.',
  failed: (reason: string | null) =>
    reason === null ? 'Something went wrong. Try again.' : `Something went wrong: ${reason}`,
  timeout: 'This took longer than it may, and was ended.',
  stopped: 'This was stopped.',
  approval: 'I need your approval before I go on. Open this conversation in Reindeer and decide there.',
  more: '[The rest is in Reindeer.]',
  noAgent: (name: string) =>
    `There is no agent “${name}”. The operator finds it under channels.session in config.yaml.`,
  notice: (text: string) => `⚠ ${text}`,
  fileTooLarge: (name: string, megabytes: number) => `${name} was not taken: it has more than ${megabytes} MB.`,
  fileFailed: (name: string) => `${name} was not taken: it could not be fetched.`,
  fileName: (name: string) => `${name} was not taken: rename it and send it again.`,
  tooManyFiles: (most: number) => `Only the first ${most} files were taken.`,
  filesKept: (names: readonly string[]) =>
    `Files that could not be sent here; you find them in Reindeer: ${names.join(', ')}`,
  fresh: 'A new conversation begins with your next message.',
  noThread: 'This conversation has not begun yet.',
  thread: (threadId: string, status: string) => `Conversation ${threadId}: ${status}.`,
  models: (names: readonly string[]) =>
    names.length === 0 ? 'No models are configured.' : `Models:\n${names.map((name) => `• ${name}`).join('\n')}`,
  memory: (facts: readonly string[] | null) => {
    if (facts === null) return 'This server remembers nothing.';
    return facts.length === 0
      ? 'Nothing is remembered of you yet.'
      : `What I remember:\n${facts.map((fact) => `• ${fact}`).join('\n')}`;
  },
  goal: (objective: string | null) => (objective === null ? 'There is no goal.' : `The goal: ${objective}`),
  goalCleared: 'The goal is gone.',
  goalTooLong: (most: number) => `A goal may have ${most} characters.`,
  unknown: (command: string, help: string) => `I do not know ${command}.\n\n${help}`,
  help: (skills: readonly string[]) =>
    [
      '/new – begin a new conversation',
      '/status – which conversation this is',
      '/goal [text | clear] – show, set or clear the goal',
      '/models – which models there are',
      '/memory – what is remembered of you',
      '/bootstrap [text] – make an agent of your own',
      '/help – this list',
      ...(skills.length === 0 ? [] : [`Skills: ${skills.map((name) => `/${name}`).join(', ')}`]),
    ].join('\n'),
} as const;
