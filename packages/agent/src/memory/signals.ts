import type { CapturedMessage } from '@reindeer/protocol';

/** What a user's words may announce; a hint to the one who learns, never a fact by itself (MEM-3). */
export const SIGNALS = ['correction', 'reinforcement', 'preference', 'identity', 'goal', 'decision'] as const;
export type Signal = (typeof SIGNALS)[number];

/** Per language; linear patterns, since they read what people write. */
const PACKS: Readonly<Record<string, Readonly<Record<Signal, RegExp>>>> = {
  en: {
    correction:
      /\b(?:that(?:'|’)?s (?:wrong|not right|not true|incorrect)|you(?:'|’)?re wrong|actually,? (?:no|i|it|my)|no,? (?:i|it|that|my)\b|i (?:said|meant)|not what i|please correct|wrong again)\b/i,
    reinforcement:
      /\b(?:exactly|perfect|that(?:'|’)?s (?:right|it|correct)|well done|keep doing|just what i (?:wanted|needed)|great job)\b/i,
    preference: /\bi(?:'|’)?(?:d)? (?:prefer|like|love|hate|dislike|always|never|usually|would rather)\b/i,
    identity:
      /\b(?:my name is|call me|i(?:'|’)?m an? |i am an? |i work (?:as|at|for|in|on)|i live in|my (?:job|role|team|company) is)\b/i,
    goal: /\b(?:my goal|i want to|i(?:'|’)?m trying to|i plan to|i aim to|i need to (?:learn|finish|build)|by (?:next|the end of))\b/i,
    decision:
      /\b(?:i(?:'|’)?ve decided|we(?:'|’)?ve decided|i decided|we decided|let(?:'|’)?s go with|from now on|we(?:'|’)?ll use)\b/i,
  },
  zh: {
    correction: /不对|不是这样|错了|说错|纠正|我是说|我的意思是|不是.{1,20}而是/,
    reinforcement: /没错|正是|对的|很好|完美|就是这样|继续这样/,
    preference: /我(?:更)?(?:喜欢|偏好|讨厌|不喜欢|习惯|总是|从不|宁愿)/,
    identity: /我叫|叫我|我是一?(?:名|个|位)|我在.{1,30}(?:工作|上班|住)|我的(?:名字|工作|职位|公司|团队)/,
    goal: /我的目标|我想要?(?:学|做|完成)|我打算|我计划|我希望/,
    decision: /决定(?:了|用|使用|采用)|我们就用|以后都|从现在起|就这么定/,
  },
};

/** Messages at the end of a conversation that are looked at. */
const LOOKED_AT = 6;

export function signalsIn(messages: readonly CapturedMessage[]): Signal[] {
  const texts = messages.slice(-LOOKED_AT).flatMap((message) => (message.role === 'user' ? message.text : []));
  const packs = Object.values(PACKS);
  return SIGNALS.filter((signal) => texts.some((text) => packs.some((pack) => pack[signal].test(text))));
}

const TRIVIAL =
  /^(?:hi|hey|hello|yo|thanks?|thank you|thx|ok(?:ay)?|yes|no|yep|nope|sure|bye|good (?:morning|evening|night)|continue|go on|test|你好|您好|谢谢|多谢|好的?|嗯|是的?|不|再见|继续|测试)[\s!.?,~。！？，…]*$/i;

/** Words that nothing can be learned from. */
export const isTrivial = (text: string): boolean => text.trim() === '' || TRIVIAL.test(text.trim().slice(0, 200));
