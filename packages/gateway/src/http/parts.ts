import type { Authorization } from '@reindeer/agent';
import type {
  FeedbackStore,
  JsonObject,
  RunService,
  SandboxLifecycle,
  SandboxProvider,
  Surroundings,
  ThreadService,
} from '@reindeer/protocol';
import type { LiveSettings } from '../config/reload.ts';
import type { Conversation } from '../conversation.ts';
import type { Prices } from '../prices.ts';
import type { Convert } from './companions.ts';
import type { GuardSettings } from './guards.ts';
import type { Page } from './page.ts';
import type { Api } from './route.ts';
import type { RunLimits } from './run-request.ts';

export interface Assistant {
  readonly assistantId: string;
  readonly name: string;
  readonly description: string;
}

/** What clients may know of a model: no key, no address, no class. */
export interface ModelView {
  readonly name: string;
  readonly model: string;
  readonly display_name: string;
  readonly description: string;
  readonly supports_thinking: boolean;
  readonly supports_reasoning_effort: boolean;
  readonly supports_vision: boolean;
  /** A scripted model that only shows the product; never a real one. */
  readonly demo: boolean;
}

export interface UploadLimits {
  readonly maxFiles: number;
  /** Bytes of one file. */
  readonly maxFileSize: number;
  /** Bytes of one request. */
  readonly maxTotalSize: number;
  /** Documents get their Markdown beside them; absent = they stay as they are. */
  readonly convert?: Convert | null;
}

/** Is new work taken? `false` from the first step of the stop on. */
export interface Intake {
  readonly ready: boolean;
  readonly stopping: boolean;
}

/** What the HTTP layer stands on; the composition root hands it over. */
export interface HttpParts {
  readonly runs: RunService;
  readonly threads: ThreadService;
  readonly feedback: FeedbackStore;
  readonly sandboxes: SandboxProvider;
  /** Sandboxes that live between turns, and this instance's name in their ownership store; null where there are none. */
  readonly sandboxPool: { readonly lifecycle: SandboxLifecycle; readonly ownerId: string } | null;
  /** Text for Prometheus. */
  readonly metrics: () => string;
  /** Routes of parts that not every composition has: MCP, skills … */
  readonly modules?: readonly ((api: Api) => void)[];
  readonly assistants: readonly Assistant[];
  readonly models: readonly ModelView[];
  /** The configuration and its changes; absent = it stays as it is. */
  readonly configuration?: LiveSettings;
  /** Looks whether the configuration is another one by now; before each request that depends on the models. */
  readonly refresh?: () => Promise<void>;
  /** Who may do what; absent = everybody everything. */
  readonly authorization?: () => Authorization | null;
  /** Custom agents of users; absent = there are none. */
  readonly agents?: {
    /** May they be managed over HTTP? */
    readonly api: boolean;
    /** Throws `validation_failed` for a name that is none. */
    exists(userId: string, name: string): Promise<boolean>;
    list(userId: string): Promise<readonly { readonly name: string; readonly description: string }[]>;
  };
  /** Compaction and suggestions; absent = this server has none. */
  readonly conversation?: Conversation;
  /** What models cost; absent = nobody knows. */
  readonly prices?: Prices;
  /** May pages show token counts? */
  readonly tokenUsage: boolean;
  readonly limits: RunLimits;
  readonly uploads: UploadLimits;
  readonly guards: GuardSettings;
  readonly page: Page;
  readonly surroundings: Surroundings;
  readonly intake: () => Intake;
  readonly version: string;
  /** Milliseconds between comments on an idle stream. */
  readonly heartbeatMs: number;
  /** Milliseconds that a reader may take nothing before it counts as gone. */
  readonly stalledMs: number;
  readonly userId: string;
  /** More for `/health`: seconds since start and the like. */
  readonly facts?: () => JsonObject;
}
