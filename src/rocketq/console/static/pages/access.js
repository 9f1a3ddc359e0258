// Users and policies.
import { h, fill, empty } from '../dom.js';
import { t } from '../i18n.js';

export default async function access(page) {
  fill(page.main, h('div.page-head', h('div.titles', h('h1', t('Access')))),
    h('section.card', empty(t('Access control is managed on the command line'), t('This release of the console shows who is signed in; users and policies are changed with these verbs.'), 'rocketq user list\nrocketq policy list')));
}
