import { type FormEvent, useState } from 'react';
import { Dialog } from '../parts/dialog.tsx';
import { usePage } from '../parts/page-context.tsx';
import { useWork, WorkTrouble } from '../parts/use-work.tsx';
import { CATEGORIES, type Fact } from './memory.ts';

interface FactDialogProps {
  /** null = a new one. */
  readonly fact: Fact | null;
  readonly onClose: () => void;
  readonly onSave: (input: { content: string; category: string; confidence: number }) => Promise<void>;
}

/** Writes a fact down, or corrects one. */
export function FactDialog({ fact, onClose, onSave }: FactDialogProps) {
  const { say } = usePage();
  const [content, setContent] = useState(fact?.content ?? '');
  const [category, setCategory] = useState(fact?.category ?? 'context');
  const [percent, setPercent] = useState(Math.round((fact?.confidence ?? 1) * 100));
  const work = useWork();
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (content.trim() !== '') work.run(() => onSave({ content: content.trim(), category, confidence: percent / 100 }));
  };
  const known: readonly string[] = CATEGORIES;
  return (
    <Dialog title={fact === null ? say('memory.add') : say('memory.edit')} onClose={onClose}>
      <form className="fields" onSubmit={submit}>
        <div className="field">
          <label htmlFor="fact">{say('memory.fact')}</label>
          <textarea
            id="fact"
            rows={3}
            maxLength={2_000}
            value={content}
            placeholder={say('memory.fact.example')}
            onChange={(event) => setContent(event.target.value)}
          />
        </div>
        <div className="field">
          <label htmlFor="category">{say('memory.category')}</label>
          <select id="category" value={category} onChange={(event) => setCategory(event.target.value)}>
            {known.includes(category) ? null : <option value={category}>{category}</option>}
            {CATEGORIES.map((name) => (
              <option key={name} value={name}>
                {say(`memory.category.${name}`)}
              </option>
            ))}
          </select>
        </div>
        <div className="field">
          <label htmlFor="confidence">{say('memory.sure', { percent })}</label>
          <input
            id="confidence"
            type="range"
            min={0}
            max={100}
            step={5}
            value={percent}
            onChange={(event) => setPercent(Number(event.target.value))}
          />
        </div>
        <WorkTrouble trouble={work.trouble} />
        <div className="dialog-bar">
          <button type="button" onClick={onClose}>
            {say('dialog.cancel')}
          </button>
          <button type="submit" className="primary" disabled={work.busy || content.trim() === ''}>
            {say('dialog.save')}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
