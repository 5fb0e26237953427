/** Line drawings of the page; always beside words or under a label, so hidden from screen readers. */
const PATHS = {
  menu: 'M4 6h16M4 12h16M4 18h16',
  plus: 'M12 5v14M5 12h14',
  pencil: 'M4 20l4-1L19 8l-3-3L5 16zM14 7l3 3',
  trash: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10 11v6M14 11v6',
  clip: 'M8 12l6-6a3.5 3.5 0 0 1 5 5l-8 8a5 5 0 0 1-7-7l8-8',
  send: 'M12 19V5M6 11l6-6 6 6',
  stop: 'M7 7h10v10H7z',
  close: 'M6 6l12 12M18 6L6 18',
  down: 'M12 5v14M6 13l6 6 6-6',
  file: 'M7 3h7l4 4v14H7zM14 3v4h4',
  save: 'M12 4v11M7 11l5 5 5-5M5 20h14',
  tool: 'M5 8l4 4-4 4M12 16h7',
  stack: 'M12 4l8 4-8 4-8-4zM4 12l8 4 8-4M4 16l8 4 8-4',
  clock: 'M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18M12 7v5l3 2',
  memory: 'M6 4h12v16l-6-4-6 4z',
  agent: 'M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8M4 20c1-4 4-6 8-6s7 2 8 6',
  skill: 'M12 4l2.2 5.3 5.8.5-4.4 3.8 1.3 5.6L12 16.2l-4.9 3 1.3-5.6L4 9.8l5.8-.5z',
  plug: 'M9 3v5M15 3v5M6 8h12v3a6 6 0 0 1-12 0zM12 17v4',
  gear: 'M4 7h9M17 7h3M4 17h3M11 17h9M15 5v4M9 15v4',
  again: 'M5 12a7 7 0 1 1 2 5M5 19v-4h4',
  branch: 'M7 4v16M7 12c6 0 10-1 10-6M14 8l3-3 3 3',
  good: 'M7 11v9H4v-9zM7 11l4-7c2 0 3 1 2.5 3L13 10h6l-1.5 10H7',
  bad: 'M7 13V4H4v9zM7 13l4 7c2 0 3-1 2.5-3L13 14h6L17.500 4H7',
  pause: 'M9 6v12M15 6v12',
  play: 'M8 5l11 7-11 7z',
  people:
    'M9 11a3.500 3.500 0 1 0 0-7 3.500 3.500 0 0 0 0 7M2.500 20c.6-4 3-6 6.500-6s5.900 2 6.500 6M16 4.500a3.500 3.500 0 0 1 0 6M18 14.500c2 .8 3 2.800 3.500 5.500',
  changes: 'M12 4v8M8 8h8M8 18h8',
  search: 'M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14M16 16l4 4',
  pin: 'M9 4h6l-1 6 3 3v2H7v-2l3-3zM12 15v6',
  check: 'M5 13l5 5 9-11',
  warn: 'M12 4l9 16H3zM12 10v4M12 17v.5',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { readonly name: IconName }) {
  return (
    <svg className="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
