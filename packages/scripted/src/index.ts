export { DEMO_MODEL, demoScript } from './demo/demo.ts';
export { ScriptedChatModel } from './model.ts';
export { type Script, type ScriptRequest, type Turn, turns } from './script.ts';
export { type ScriptedProvider, startScriptedProvider } from './server.ts';
