import { useState } from 'react';
import { InputField, SelectField, TextField } from '../parts/fields.tsx';
import { FormDialog } from '../parts/form-dialog.tsx';
import { usePage } from '../parts/page-context.tsx';
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
  return (
    <FormDialog
      title={fact === null ? say('memory.add') : say('memory.edit')}
      ready={content.trim() !== ''}
      onSubmit={() => onSave({ content: content.trim(), category, confidence: percent / 100 })}
      onClose={onClose}
    >
      <TextField
        label={say('memory.fact')}
        rows={3}
        maxLength={2_000}
        value={content}
        placeholder={say('memory.fact.example')}
        onChange={setContent}
      />
      <SelectField<string>
        label={say('memory.category')}
        value={category}
        options={CATEGORIES.map((name) => ({ value: name, label: say(`memory.category.${name}`) }))}
        onChange={(chosen) => setCategory(chosen ?? 'context')}
      />
      <InputField
        label={say('memory.sure', { percent })}
        type="range"
        min={0}
        max={100}
        step={5}
        value={percent}
        onChange={(text) => setPercent(Number(text))}
      />
    </FormDialog>
  );
}
